package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// column is one of the matrix: a scenario of the command's report, or what its clause shows.
type column struct {
	title    string
	scenario string
	script   string // a case of reproduce.sh
}

const (
	change         = "change"
	anotherRequest = "RESPONSE OF ANOTHER REQUEST"
)

// Columns that the report has no scenario for.
const (
	accounts   = "accounts"
	credential = "credential"
	longKey    = "long key"
)

func columns() []column {
	return []column{
		{"repeated", "repeat", "repeat"},
		{"other body", change, "change"},
		{"other account", accounts, "accounts"},
		{"other credential", credential, "credential"},
		{"long key", longKey, "long"},
		{"concurrent", "race", "race"},
		{"client gone", "cut", "cut"},
		{"provider's outage", "outage", "outage"},
		{"server killed", crash, "crash"},
		{"used later", "later", "repeat"},
		{"key expired", expiry, expiry},
		{"two processes", replica, replica},
	}
}

// column returns where an anomaly belongs.
func (a anomaly) column() string {
	switch {
	case slices.Contains(a.Clauses, "IR-20"):
		return "outage"
	case a.Kind == "RESPONSE OF ANOTHER TENANT":
		return accounts
	case a.Kind == anotherRequest:
		return change // whether it is seen among concurrent requests too depends on their timing
	case a.Scenario == "repeat" && slices.Contains(a.Clauses, "IR-7"):
		return credential
	case a.Scenario == "repeat" && (slices.Contains(a.Clauses, "IR-3") || slices.Contains(a.Clauses, "IR-53")): // keys that differ late are long
		return longKey
	}
	switch a.Scenario {
	case "one": // a single request, before its repetition
		return "repeat"
	case "client": // one that obeys the responses to requests that were cut off
		return "cut"
	default:
		return a.Scenario
	}
}

func (a anomaly) label() string {
	switch a.Kind {
	case "EXECUTED TWICE":
		if a.Scenario == expiry {
			return "charged again"
		}
		return "charged twice"
	case "FAILURE ANSWERED, YET EXECUTED":
		return "failure answered, charged"
	case "SUCCESS ANSWERED, NOT EXECUTED":
		return "success answered, not charged"
	case anotherRequest:
		return "first response"
	case "RESPONSE OF ANOTHER TENANT":
		return "first account's response"
	case "BLOCKED":
		if isRefusal(a.Summary) {
			return refused
		}
		return "no final response"
	default:
		return strings.ToLower(a.Kind)
	}
}

// in returns the anomalies of a column. One of concurrent requests with another body is left
// out if the same is seen without concurrency.
func (r *result) in(c column) []anomaly {
	var all []anomaly
	for _, a := range r.Anomalies {
		again := a.column() != a.Scenario && slices.ContainsFunc(r.Anomalies, func(other anomaly) bool {
			return other.Kind == a.Kind && other.Scenario == a.column()
		})
		if a.column() == c.scenario && !again {
			all = append(all, a)
		}
	}
	// No second effect, but the client does not get the response.
	repeats := map[string]string{"repeat": "IR-19", accounts: "IR-6", credential: "IR-7", "cut": "IR-32"}[c.scenario]
	if state, message := r.of(repeats); state == "fail" && isRefusal(message) {
		lines := strings.Split(message, "\n") // those before the last one are the anomalies
		all = append(all, anomaly{Kind: refused, Scenario: c.scenario, Clauses: []string{repeats}, Summary: lines[len(lines)-1]})
	}
	return all
}

const refused = "refused"

var lastStatus = regexp.MustCompile(`(?:got|one is) (4\d\d)$`)

// retried are the refusals after which a client sends the request again.
var retried = map[string]bool{"409": true, "423": true, "425": true, "429": true}

// isRefusal reports whether a message ends with a final refusal. A 402 is the provider's decline.
func isRefusal(message string) bool {
	status := lastStatus.FindStringSubmatch(message)
	return status != nil && status[1] != "402" && !retried[status[1]]
}

const notReproduced = "not reproduced"

// cell leaves out the expiry of a store whose keys do not expire, and what the script does not show.
func (one checked) cell(c column) string {
	if c.scenario == expiry && !one.expires() {
		return "–"
	}
	for _, a := range one.in(c) {
		if !one.reproduced(c, a.label()) {
			return notReproduced
		}
	}
	return one.result.cell(c)
}

// printed returns the case that shows an anomaly of a column, and the output of its two runs, which may be empty.
func (one checked) printed(c column) (name, first, second string) {
	name = c.script
	for _, n := range one.notes(c) {
		name = cmp.Or(n.Reproduce, name)
	}
	first, second, _ = strings.Cut(one.seen[one.String()+" "+name], "\n\n")
	return name, first, second
}

// reproduced reports whether both runs show a label.
func (one checked) reproduced(c column, label string) bool {
	_, first, second := one.printed(c)
	return shows(first, label) && shows(second, label)
}

// cell is "ok" if the scenario was exercised and showed no anomaly.
func (r result) cell(c column) string {
	var labels []string
	for _, a := range r.in(c) {
		if label := a.label(); !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	if len(labels) > 0 {
		return "**" + strings.Join(labels, "; ") + "**"
	}
	if c.scenario == crash && r.Kills > 0 {
		return "ok, " + plural(r.Kills, "kill")
	}
	clauses := map[string]string{accounts: "IR-6", credential: "IR-7", longKey: "IR-3"}
	if state, _ := r.of(clauses[c.scenario]); state != "" || slices.Contains(r.Exercised, c.scenario) {
		return "ok"
	}
	return "–"
}

// checked is a subject with its result.
type checked struct {
	subject
	result
	seen map[string]string // what the scripts of all subjects printed
}

// writePage writes the page from the results.
func writePage(root string, all []*implementation) error {
	text, err := page(root, all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(root), "implementations.md"), []byte(text), 0o644) //nolint:gosec // a page
}

// page returns the page. An implementation without a result is left out. An anomaly whose script was not
// run is an error, and so is one that the script does not show, unless a note describes it.
func page(root string, all []*implementation) (string, error) {
	subjects, err := choose(all, nil)
	if err != nil {
		return "", err
	}
	results, err := readResults(root)
	if err != nil {
		return "", err
	}
	seen, err := observed(root)
	if err != nil {
		return "", err
	}
	var found []checked
	for _, s := range subjects {
		r, ok := results[s.String()]
		if !ok {
			continue
		}
		if err := r.enough(); err != nil {
			return "", fmt.Errorf("%s: %w", s, err)
		}
		for _, a := range r.Anomalies {
			if !slices.ContainsFunc(columns(), func(c column) bool { return c.scenario == a.column() }) {
				return "", fmt.Errorf("%s: no column has the anomaly %q", s, a.Title)
			}
		}
		found = append(found, checked{s, r, seen})
	}
	return render(root, found)
}

const introduction = `# What other implementations do

Before you choose a library for idempotent requests, you can read here what some of them do when a request is repeated, changed, cut off, sent twice at once, or interrupted by a crash. %s sends the requests and counts the charges. ` + "`make -C spec implementations`" + ` runs everything again and writes this page.

Each implementation is set up as its documentation describes, with its default store if that runs here, and with a durable one if it has one. Each section lists what is set up differently, and its notes name options that would change a result. The server behind it posts a charge to a provider and returns the provider's answer. It is the same for all but rocket-rides-atomic, which is a program of its own.

**The provider here gets no idempotency key**, because the question is what the library does alone. The exception is rocket-rides-atomic, which passes a key to its provider as a part of its design. Many providers honour such keys. If a handler derives one from the client's key and passes it on, a second execution finds the first charge, so "charged twice" then means only that the handler ran twice.

A library promises what its documentation says, which is quoted in each section, and most of them promise less than [this repository's profile](idempotent-requests.md) requires. So a bold cell describes a difference from the profile, and is not always a defect. For example, a step of DBOS is documented to run at least once, several documentations limit the lifetime of a key, and a store in memory is not meant to survive a kill. "ok" means that no violation was found, and is no proof.

`

const legend = `
| column | what happens |
| --- | --- |
| repeated | The same request is sent again after its response. |
| other body | The key is used again with another amount. The profile requires a refusal. |
| other account | Another account sends the same request with the same key. |
| other credential | The request is repeated with another credential of its account. The profile requires the first response. |
| long key | The request and its repetition have a key of 255 characters. |
| concurrent | Up to twelve requests with one key are sent at once, first with the same body, then half of them with another amount. A response of the first for another amount counts under "other body", because its timing decides whether it is seen here too. |
| client gone | The connection breaks before, during and after the work. |
| provider's outage | The provider answers 503, and works again later. |
| server killed | The server is killed during requests and started again, up to 20 times. The check ends with the first violation, so a section says after how many kills it was found. A durable store stays, and a store in memory ends with the server. |
| used later | A key is used again at the end of the run. |
| key expired | The server runs with a lifetime of one second, and the request is repeated after three. The profile requires a refusal. |
| two processes | Two processes of the server share the store, and twelve requests with one key are sent at once, half to each. Then each process repeats the response. |

| answer | meaning |
| --- | --- |
| ok | One charge at most, and no response of another request. A refusal of another body, or of a concurrent request, is ok, whatever its status is. |
| charged twice | One key led to more than one charge, or several keys together led to more charges than there are keys. Under "other body" and "other credential", the library takes the second request for a new one. |
| charged again | After its lifetime, the key is a new one. |
| first response | The first request's response is returned for another body, which is not charged. |
| first account's response | Another account gets the first account's response. |
| failure answered, charged | The final response is a failure, but there is a charge. |
| refused | A repetition of a finished request gets a refusal, such as 422, instead of the first response. Under "other account", the first request of that account gets it. No second charge was found. |
| no final response | A repetition gets no success for as long as the command waits: it gets 409, or a 5xx, which may be a stored one. No second charge was found. After a kill, the command waits for 10 seconds more than the entry's time for a takeover, which is 2 seconds if none is documented. |
| not reproduced | The command found a violation, which its case of the script does not show in both of its runs. The section describes it. |
| – | The scenario was not exercised; the section says why. |

<a id="versions"></a>

Each section names the version that was tested and the day, and a newer version if one is known. A newer version was not tested, so the results say nothing about it. What is known is of 2026-11-27: it comes from the registries that could be asked, which hold only a part of what npm and the Go module proxy publish, and from copies of the projects' repositories, of which some are months old. So a version or a package can exist that this page does not name.

Not tested:

- @nestarc/idempotency for NestJS: [its repository](https://github.com/nestarc/idempotency) has the release 0.4.0 of 2026-06-16. The package could not be obtained where the entries were written.
- @node-idempotency/express: [its repository](https://github.com/mahendraHegde/node-idempotency) has the release 1.0.7. The package could not be obtained where the entries were written.
- express-idempotency with MongoDB: it needs a MongoDB server, which Debian does not have.
- Powertools for AWS Lambda with DynamoDB: it needs DynamoDB.
- idempotency4j: it is obtained from Maven Central, which was not reachable where the entries were written.
- velmie/idempo and bright-room/idem (Go): they could not be obtained where the entries were written.
- Restate and Temporal: each needs a server of its own, which the runner does not start. [The peers](../lab/peers/README.md) compare both while they are killed.
`

// render returns the page about the results.
func render(root string, found []checked) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, introduction, "[The conformance command](conformance/README.md)")
	var titles, rule []string
	for _, c := range columns() {
		titles, rule = append(titles, c.title), append(rule, "---")
	}
	fmt.Fprintf(&text, "| implementation | store | %s |\n| --- | --- | %s |\n", strings.Join(titles, " | "), strings.Join(rule, " | "))
	for _, one := range found {
		var cells []string
		for _, c := range columns() {
			cells = append(cells, one.cell(c))
		}
		fmt.Fprintf(&text, "| [%s](#%s) | %s | %s |\n", one.Name, one.id, one.store.Name, strings.Join(cells, " | "))
	}
	text.WriteString(legend)
	text.WriteString("\nIs something wrong or missing here? Each section is written from an entry of [`entries.yaml`](implementations/entries.yaml); [how to add or correct one](implementations/README.md).\n")
	for i, one := range found {
		if i == 0 || found[i-1].id != one.id {
			one.describe(&text)
		}
		if err := one.report(root, &text); err != nil {
			return "", err
		}
	}
	script, err := os.ReadFile(filepath.Join(root, "reproduce.sh")) //nolint:gosec // a file of this folder
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&text, scriptSection, script)
	return text.String(), nil
}

// describe writes what is true of all stores.
func (one checked) describe(text *strings.Builder) {
	fmt.Fprintf(text, "\n<a id=%q></a>\n\n## %s\n\n%s", one.id, one.Name, one.About)
	fmt.Fprintf(text, " Version %s, %s", one.implementation.Version, one.Language)
	if one.Source != "" {
		fmt.Fprintf(text, ", [source](%s)", one.Source)
	}
	fmt.Fprintf(text, ". %s\n\nSet-up:\n\n", cmp.Or(one.Newer, "No newer version was known on 2026-11-27; see [which versions were tested](#versions)."))
	for _, line := range one.Setup {
		fmt.Fprintf(text, "- %s\n", line)
	}
	fmt.Fprintf(text, "\n%s:\n\n", cmp.Or(one.Documentation, "Its documentation"))
	for _, p := range one.Promises {
		fmt.Fprintf(text, "- “%s” (%s)\n", p.Says, p.Where)
	}
}

// report writes the answers of one store.
func (one checked) report(root string, text *strings.Builder) error {
	fmt.Fprintf(text, "\n### %s with the store %s\n\n", one.Name, one.store.Name)
	if one.store.About != "" {
		fmt.Fprintf(text, "The store is %s. ", one.store.About)
	}
	fmt.Fprintf(text, "Version %s was checked on %s with version %s of the command, seed %d.\n", one.implementation.Version, one.Started.Format("2006-01-02"), one.result.Version, one.Seed)
	var clean, open []string
	unsure := ""
	for _, c := range columns() {
		switch one.cell(c) {
		case "ok":
			clean = append(clean, c.title)
			continue
		case "ok, " + plural(one.Kills, "kill"):
			clean = append(clean, fmt.Sprintf("%s (%s)", c.title, plural(one.Kills, "kill")))
			continue
		case "–":
			reason, err := one.reason(c)
			if err != nil {
				return err
			}
			open = append(open, c.title+" ("+reason+")")
			continue
		case notReproduced:
			described, err := one.unreproduced(root, c)
			if err != nil {
				return err
			}
			unsure += described
			continue
		}
		if err := one.anomalies(root, c, text); err != nil {
			return err
		}
	}
	if len(clean) > 0 {
		fmt.Fprintf(text, "\nNo violation was found in: %s.\n", strings.Join(clean, ", "))
	}
	if len(open) > 0 {
		fmt.Fprintf(text, "\nNot exercised: %s.\n", strings.Join(open, ", "))
	}
	text.WriteString(unsure)
	return nil
}

// unreproduced describes what the command found in a column and the script does not show.
func (one checked) unreproduced(root string, c column) (string, error) {
	name, first, second := one.printed(c)
	notes := one.notes(c)
	if first == "" || second == "" || len(notes) == 0 {
		return "", fmt.Errorf("%s: %s: neither shown by the case %s nor described by a note", one.subject, c.title, name)
	}
	file := one.script(root)
	text := fmt.Sprintf("\nNot reproduced: %s, %s.%s The two runs of [`%s %s`](implementations/%s) do not both show it.", c.title,
		strings.Trim(one.result.cell(c), "*"), one.found(c), filepath.Base(file), name, file)
	for _, n := range notes {
		text += " " + n.Text
	}
	return text + "\n", nil
}

// found returns what the command reported in a column.
func (one checked) found(c column) (text string) {
	for _, a := range one.in(c) {
		shown := strings.Join(a.Clauses, ", ")
		if c.scenario == crash {
			shown += ", after " + plural(one.Kills, "kill")
		}
		text += fmt.Sprintf(" %s (%s).", upper(strings.TrimSuffix(accountNames.Replace(a.Summary), ".")), shown)
	}
	return text
}

// reason tells why a scenario was not exercised.
func (one checked) reason(c column) (string, error) {
	if c.scenario == expiry && one.store.Keeps {
		return "the keys of this store do not expire", nil
	}
	if c.scenario == replica {
		if one.store.Needs == "" {
			return "the store is in one process", nil
		}
		return "it was not run with two processes", nil
	}
	for _, n := range one.notes(c) {
		return n.Text, nil
	}
	return "", fmt.Errorf("%s: %s: no note says why it was not exercised", one.subject, c.title)
}

// notes returns those of a column.
func (s subject) notes(c column) []note {
	var found []note
	for _, n := range s.Notes {
		if n.Scenario == c.scenario && (len(n.Stores) == 0 || slices.Contains(n.Stores, s.store.Name)) {
			found = append(found, n)
		}
	}
	return found
}

// anomalies writes what was seen in one column, with the script that shows it.
func (one checked) anomalies(root string, c column, text *strings.Builder) error {
	fmt.Fprintf(text, "\n**%s: %s.**%s", upper(c.title), strings.Trim(one.cell(c), "*"), one.found(c))
	for _, n := range one.notes(c) {
		text.WriteString(" " + n.Text)
	}
	script, first, second := one.printed(c)
	if !slices.Equal(statuses(first), statuses(second)) {
		return fmt.Errorf("%s: %s: the two runs of the case %s differ", one.subject, c.title, script)
	}
	file := one.script(root)
	fmt.Fprintf(text, "\n\n[`%s %s`](implementations/%s) printed, in the first of two runs:\n\n```text\n%s\n```\n", filepath.Base(file), script, file, first)
	return nil
}

// accountNames are words for the members of a profile file.
var accountNames = strings.NewReplacer("second_account", "the second account", "which account created", "which the first account created")

// shows reports whether a run of a script has an answer of the legend.
func shows(output, label string) bool {
	got, expected := charges(output)
	switch label {
	case "charged twice", "charged again":
		return got > expected
	case "first response", "first account's response": // all responses name one charge
		ids := regexp.MustCompile(`"ch_\d+"`).FindAllString(output, -1)
		return len(ids) > 1 && len(slices.Compact(ids)) == 1
	case "no final response":
		return slices.ContainsFunc(statuses(output), func(status string) bool { return retried[status] || status >= "500" })
	case "failure answered, charged":
		return got > 0 && slices.ContainsFunc(statuses(output), func(status string) bool { return status >= "400" })
	case refused:
		return slices.ContainsFunc(statuses(output), func(status string) bool { return isRefusal("got " + status) })
	default:
		return false
	}
}

var count = regexp.MustCompile(`charges: (\d+), expected (\d+)`)

// charges returns how many a script has seen and expected.
func charges(output string) (got, expected int) {
	if numbers := count.FindStringSubmatch(output); numbers != nil {
		got, _ = strconv.Atoi(numbers[1])
		expected, _ = strconv.Atoi(numbers[2])
	}
	return got, expected
}

var lineStatus = regexp.MustCompile(`(?m) (\d{3})(?: \(\d+ s after the start\))?$`)

// statuses returns the statuses that a script has printed, each once.
func statuses(output string) []string {
	var all []string
	for _, found := range lineStatus.FindAllStringSubmatch(output, -1) {
		all = append(all, found[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

const scriptSection = `
## The script

Each case that a section shows was run twice against its entry, each time with a fresh server, store and provider. ` + "`go -C spec run ./implementations serve NAME/STORE`" + ` starts them and prints the variables ` + "`URL`, `CONTROL` and `KEY_HEADER`; `-lifetime 1`" + ` sets the lifetime of a key. ` + "`$CONTROL`" + ` is the provider, and kills and starts the server.

` + "[`reproduce.sh`](implementations/reproduce.sh)\n\n```text\n%s```\n"
