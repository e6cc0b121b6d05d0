package main

import (
	"fmt"
	"slices"
	"strings"
)

const formIntroduction = `# The form of their responses

[What other implementations do](implementations.md) is about safety. This page is about form: statuses, header fields and members that differ from [the profile](idempotent-requests.md). None of them charges twice, and no documentation here promises the profile's form. A client that speaks to several servers needs to know them. A 503 here is the handler's response to the provider's outage.

| answer | meaning |
| --- | --- |
| ok | The form is that of the profile. |
| differs | It is another one; the lists below have the details. |
| – | The clause was not exercised, because the server has no such feature or the file does not configure it. |

`

// formPage has a table of the clauses about form, and what was observed.
func formPage(found []checked) string {
	var text strings.Builder
	text.WriteString(formIntroduction)
	titles, rule := []string{"clause"}, []string{"---"}
	for _, one := range found {
		titles, rule = append(titles, fmt.Sprintf("[%s](#%s)", one.fileName(), anchor(one.subject))), append(rule, "---")
	}
	fmt.Fprintf(&text, "| %s |\n| %s |\n", strings.Join(titles, " | "), strings.Join(rule, " | "))
	for _, id := range formClauses(found) {
		cells := []string{}
		title := ""
		for _, one := range found {
			c := one.of(id)
			title = c.Title
			cells = append(cells, formCell(c))
		}
		fmt.Fprintf(&text, "| [%s](idempotent-requests.md#%s) %s | %s |\n", id, strings.ToLower(id), title, strings.Join(cells, " | "))
	}
	for _, one := range found {
		fmt.Fprintf(&text, "\n<a id=%q></a>\n\n## %s with the store %s\n\n", anchor(one.subject), one.Name, one.store.Name)
		for _, c := range one.Results {
			if isForm(c) && formCell(c) == "differs" {
				fmt.Fprintf(&text, "- %s: %s\n", c.Clause, strings.ReplaceAll(c.Message, "\n", "; "))
			}
		}
	}
	return text.String()
}

func anchor(s subject) string { return strings.ReplaceAll(s.fileName(), ".", "-") }

func isForm(c clause) bool { return c.Level > 0 && c.Class == "form" }

func formClauses(found []checked) []string {
	var ids []string
	for _, one := range found {
		for _, c := range one.Results {
			if isForm(c) && !slices.Contains(ids, c.Clause) {
				ids = append(ids, c.Clause)
			}
		}
	}
	return ids
}

func formCell(c clause) string {
	switch c.State {
	case "pass", "declared":
		return "ok"
	case "not exercised", "":
		return "–"
	default:
		return "differs"
	}
}
