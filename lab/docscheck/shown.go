package docscheck

import (
	"fmt"
	"regexp"
	"strings"
)

// changing matches values that differ between runs.
var changing = regexp.MustCompile(strings.Join([]string{
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,         // ids
	`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| ?[+-]\d\d:?\d\d)?`,   // times
	`(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`, // Date headers
	`(?:pi|ch|re|evt|req)_\w+`,       // ids of the provider
	`ok_\w+`,                         // API keys
	`\b\d{8}-\d{6}\b`,                // in keys of playground run
	`(?:localhost|127\.0\.0\.1):\d+`, // addresses
	`\b[A-Z2-7]{26}\b`,               // request ids
	`\b\d+(?:\.\d+)?(?:ms|s| s)\b`,   // durations
}, "|"))

// Compare returns an error if an output differs from the lines that a page shows. A line
// "…" matches any lines, and "…" within a line any text. Values such as ids and times
// only need the same form.
func Compare(shown []string, output string) error {
	var pattern strings.Builder
	for _, line := range shown {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(like(line) + `[ \t]*\n`)
	}
	output = strings.TrimRight(strings.ReplaceAll(output, "\r\n", "\n"), "\n") + "\n"
	expression, err := regexp.Compile(`\A` + strings.TrimSuffix(pattern.String(), `\n`) + `\n*\z`)
	if err != nil {
		return err
	}
	if !expression.MatchString(output) {
		for _, line := range shown {
			if found, err := regexp.MatchString("(?m)^"+like(line)+"[ \t]*$", output); strings.TrimSpace(line) != "…" && (err != nil || !found) {
				return fmt.Errorf("the page is out of date; edit it. The program prints no line like\n%s\nIt printed\n%s", line, output)
			}
		}
		return fmt.Errorf("the page and the program differ in the order or number of the lines:\n%s\nIt printed\n%s", strings.Join(shown, "\n"), output)
	}
	return nil
}

func like(line string) string {
	var pattern strings.Builder
	line = strings.TrimRight(line, " \t")
	for line != "" {
		at := changing.FindStringIndex(line)
		if at == nil {
			at = []int{len(line), len(line)}
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line[:at[0]]), "…", ".*"))
		if at[0] < at[1] {
			pattern.WriteString("(?:" + changing.String() + ")")
		}
		line = line[at[1]:]
	}
	return pattern.String()
}
