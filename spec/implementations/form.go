package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
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
func formPage(root string, found []checked) (string, error) {
	clauses, err := formClauses(root)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(formIntroduction)
	titles, rule := []string{"clause"}, []string{"---"}
	for _, one := range found {
		titles, rule = append(titles, fmt.Sprintf("[%s](#%s)", one.fileName(), anchor(one.subject))), append(rule, "---")
	}
	fmt.Fprintf(&text, "| %s |\n| %s |\n", strings.Join(titles, " | "), strings.Join(rule, " | "))
	for _, c := range clauses {
		var cells []string
		for _, one := range found {
			cells = append(cells, one.formCell(c.ID))
		}
		fmt.Fprintf(&text, "| [%s](idempotent-requests.md#%s) %s | %s |\n", c.ID, strings.ToLower(c.ID), c.Title, strings.Join(cells, " | "))
	}
	for _, one := range found {
		fmt.Fprintf(&text, "\n<a id=%q></a>\n\n## %s with the store %s\n\n", anchor(one.subject), one.Name, one.store.Name)
		for _, c := range clauses {
			if _, message := one.of(c.ID); one.formCell(c.ID) == "differs" {
				fmt.Fprintf(&text, "- %s: %s\n", c.ID, strings.ReplaceAll(message, "\n", "; "))
			}
		}
	}
	return text.String(), nil
}

func anchor(s subject) string { return strings.ReplaceAll(s.fileName(), ".", "-") }

type clause struct {
	ID    string `yaml:"id"`
	Level int    `yaml:"level"` // 0: it cannot be observed
	Class string `yaml:"class"`
	Title string `yaml:"title"`
}

// formClauses returns the clauses about form that the command can check.
func formClauses(root string) ([]clause, error) {
	text, err := os.ReadFile(filepath.Join(root, "..", "clauses.yaml")) //nolint:gosec // a file of the repository
	if err != nil {
		return nil, err
	}
	var all []clause
	err = yaml.Unmarshal(text, &all)
	return slices.DeleteFunc(all, func(c clause) bool { return c.Class != "form" || c.Level == 0 }), err
}

func (r *result) formCell(id string) string {
	switch state, _ := r.of(id); state {
	case "pass", "declared":
		return "ok"
	case "":
		return "–"
	default:
		return "differs"
	}
}
