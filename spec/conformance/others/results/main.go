// Command results writes results.md. Each argument is a name and the JSON report of the
// command conformance: "name=file".
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

type report struct {
	Level     int    `json:"level"`
	Reached   int    `json:"reached"`
	Safety    string `json:"safety"`
	Anomalies []struct {
		Title   string `json:"title"`
		Summary string `json:"summary"`
	} `json:"anomalies"`
	Results []struct {
		Clause  string `json:"clause"`
		Level   int    `json:"level"`
		Keyword string `json:"keyword"`
		Title   string `json:"title"`
		State   string `json:"state"`
		Message string `json:"message"`
	} `json:"results"`
}

type implementation struct {
	name string
	report
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var all []implementation
	for _, arg := range args {
		name, file, _ := strings.Cut(arg, "=")
		text, err := os.ReadFile(file) //nolint:gosec // an argument
		if err != nil {
			return err
		}
		one := implementation{name: name}
		if err := json.Unmarshal(text, &one.report); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, one)
	}
	_, err := os.Stdout.WriteString(page(all, time.Now().UTC()))
	return err
}

const introduction = `# Other implementations, checked against the profile

The [command](README.md) checked these implementations against the [profile](../idempotent-requests.md) on %s. ` + "`make -C spec conformance-others-check`" + ` starts each server here, checks it and writes this page.

They were not written for the profile, and they promise less than it requires. So a failed clause is no defect of an implementation: its documentation states what it promises.

- The fake Stripe is [` + "`cmd/stripetest`" + `](../../cmd/stripetest/main.go) of this repository ([profile file](profiles/stripetest.yaml)). It is not Stripe. It imitates what [Stripe documents](https://docs.stripe.com/api/idempotent_requests). It accepts every test key, so IR-49 fails, and has no second account.
- Fiber is its [idempotency middleware](https://docs.gofiber.io/middleware/idempotency) in front of a [small API](others/fiber/main.go) ([profile file](profiles/fiber.yaml)). The options set the name of the header, the length of a key and the lifetime.
- [express-idempotency](https://github.com/VilledeMontreal/express-idempotency) is in front of the same API for Express ([server](others/express/server.js), [profile file](profiles/express.yaml)). It has its default options.

The two middlewares have their default storage, in memory, so a kill deletes their keys. The charges are in a file, which a kill does not delete. Another storage or validator can change the results.

`

func page(all []implementation, now time.Time) string {
	var text strings.Builder
	fmt.Fprintf(&text, introduction, now.Format(time.DateOnly))
	text.WriteString("| implementation | safety | levels checked | highest level reached | pass | MUST fail | SHOULD or MAY fail | not exercised |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, one := range all {
		reached := "none"
		if one.Reached > 0 {
			reached = strconv.Itoa(one.Reached)
		}
		fmt.Fprintf(&text, "| %s | %s | 1 to %d | %s | %d | %d | %d | %d |\n", one.name, one.Safety, one.Level, reached, one.count("pass", ""), one.count("fail", "MUST"),
			one.count("fail", "")-one.count("fail", "MUST"), one.count("not exercised", ""))
	}
	text.WriteString("\nClauses that are not observable from outside are omitted. One cause can make several clauses fail.\n")
	for _, one := range all {
		fmt.Fprintf(&text, "\n## %s\n\n", one.name)
		for _, a := range one.Anomalies {
			fmt.Fprintf(&text, "- **%s**: %s\n", a.Title, a.Summary)
		}
		if len(one.Anomalies) > 0 {
			text.WriteString("\n")
		}
		text.WriteString("| clause | | result | observed |\n| --- | --- | --- | --- |\n")
		var passed []string
		for _, r := range one.Results {
			link := fmt.Sprintf("[%s](../idempotent-requests.md#%s)", r.Clause, strings.ToLower(r.Clause))
			switch {
			case r.Level == 0:
			case r.State == "pass":
				passed = append(passed, link)
			default:
				fmt.Fprintf(&text, "| %s %s | %s | %s | %s |\n", link, r.Title, r.Keyword, r.State, strings.NewReplacer("|", `\|`, "\n", "; ").Replace(r.Message))
			}
		}
		fmt.Fprintf(&text, "\nPassed: %s.\n", strings.Join(passed, ", "))
	}
	return text.String()
}

// count counts the observable clauses with this state and, unless it is empty, keyword.
func (r report) count(state, keyword string) int {
	n := 0
	for _, one := range r.Results {
		if one.Level > 0 && one.State == state && (keyword == "" || one.Keyword == keyword) {
			n++
		}
	}
	return n
}
