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

// isRefusal reports whether a message ends with a final refusal. A 402 is the provider's decline.
func isRefusal(message string) bool {
	status := lastStatus.FindStringSubmatch(message)
	return status != nil && !slices.Contains([]string{"402", "409", "423", "425", "429"}, status[1])
}

// cell leaves out the expiry of a store whose keys do not expire.
func (one checked) cell(c column) string {
	if c.scenario == expiry && !one.expires() {
		return "–"
	}
	return one.result.cell(c)
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
}

// writePage writes the page from the results.
func writePage(root string, all []*implementation) error {
	text, err := page(root, all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(root), "implementations.md"), []byte(text), 0o644) //nolint:gosec // a page
}

// page returns the page. An implementation without a result is left out, and an anomaly that no
// script has reproduced is an error.
func page(root string, all []*implementation) (string, error) {
	subjects, err := choose(all, nil)
	if err != nil {
		return "", err
	}
	results, err := readResults(root)
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
		found = append(found, checked{s, r})
	}
	return render(root, found)
}

const introduction = `# What other implementations do

Before you choose a library for idempotent requests, you can read here what some of them do when a request is repeated, changed, cut off, sent twice at once, or interrupted by a crash. %s sends the requests and counts the charges. ` + "`make -C spec implementations`" + ` runs everything again and writes this page.

Each implementation is set up as its documentation describes, with its default store if that runs here, and with a durable one if it has one. Each section lists what is set up differently, and its notes name options that would change a result. The server behind it is always the same: it posts a charge to a provider and returns the provider's answer.

**The provider here gets no idempotency key**, because the question is what the library does alone. The exception is rocket-rides-atomic, which passes a key to its provider as a part of its design. Many providers honour such keys. If a handler derives one from the client's key and passes it on, a second execution finds the first charge, so "charged twice" then means only that the handler ran twice.

A library promises what its documentation says, which is quoted in each section, and most of them promise less than [this repository's profile](idempotent-requests.md) requires. So a cell that is not "ok" describes a difference from the profile, and is not always a defect. For example, a step of DBOS is documented to run at least once, several documentations limit the lifetime of a key, and a store in memory is not meant to survive a kill. "ok" means that no violation was found, and is no proof.

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
	return nil
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
	fmt.Fprintf(text, "\n**%s: %s.**", upper(c.title), strings.Trim(one.cell(c), "*"))
	for _, a := range one.in(c) {
		shown := strings.Join(a.Clauses, ", ")
		if c.scenario == crash {
			shown += ", after " + plural(one.Kills, "kill")
		}
		fmt.Fprintf(text, " %s (%s).", upper(strings.TrimSuffix(accountNames.Replace(a.Summary), ".")), shown)
	}
	script := c.script
	for _, n := range one.notes(c) {
		text.WriteString(" " + n.Text)
		if n.Reproduce != "" {
			script = n.Reproduce
		}
	}
	seen, err := observed(root)
	if err != nil {
		return err
	}
	first, second, reproduced := strings.Cut(seen[one.String()+" "+script], "\n\n")
	if !reproduced {
		return fmt.Errorf("%s: %s: no script has reproduced it", one.subject, c.title)
	}
	if again := strings.Contains(one.cell(c), "charged twice") || strings.Contains(one.cell(c), "charged again"); again && (!doubled(first) || !doubled(second)) {
		return fmt.Errorf("%s: %s: the case %s has not shown it twice", one.subject, c.title, script)
	}
	if !slices.Equal(statuses(first), statuses(second)) {
		return fmt.Errorf("%s: %s: the two runs of the case %s differ", one.subject, c.title, script)
	}
	file := one.script(root)
	fmt.Fprintf(text, "\n\n[`%s %s`](implementations/%s) printed, in the first of two runs:\n\n```text\n%s\n```\n", filepath.Base(file), script, file, first)
	return nil
}

// accountNames are words for the members of a profile file.
var accountNames = strings.NewReplacer("second_account", "the second account", "which account created", "which the first account created")

var count = regexp.MustCompile(`charges: (\d+), expected (\d+)`)

// doubled reports whether a script has seen more charges than it expected.
func doubled(output string) bool {
	numbers := count.FindStringSubmatch(output)
	if numbers == nil {
		return false
	}
	got, _ := strconv.Atoi(numbers[1])
	expected, _ := strconv.Atoi(numbers[2])
	return got > expected
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
