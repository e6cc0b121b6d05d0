package profile_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var root = os.DirFS("../..")

type clause struct {
	ID      string
	Level   int    // 0: not observable
	Class   string // safety, liveness or form
	Keyword string
	Title   string
	Check   []check // not on the page
}

type check struct{ File, Test string }

var (
	section = regexp.MustCompile(`(?m)^## .*`)
	start   = regexp.MustCompile(`(?m)^<a id="(ir-\d+)"></a>$`)
	form    = regexp.MustCompile(`(?s)^<a id="ir-(\d+)"></a>\n\n### IR-(\d+): ([^\n]+)\n\n(Level \d|Not observable), (safety|liveness|form)\. ([^\n]+)\n\n\*Reason:\* [^\n]+$`)
	keyword = regexp.MustCompile(`\b(?:MUST|SHOULD|MAY)\b`)
)

// clauses parses the page of the profile.
func clauses(page string) ([]clause, error) {
	var all []clause
	for _, part := range section.Split(page, -1) {
		starts := start.FindAllStringIndex(part, -1)
		for i, at := range starts {
			end := len(part)
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			text := strings.TrimSpace(part[at[0]:end])
			match := form.FindStringSubmatch(text)
			if match == nil || match[1] != match[2] {
				return nil, fmt.Errorf("a clause has another form: %s", text)
			}
			c := clause{ID: "IR-" + match[1], Title: match[3], Class: match[5], Keyword: keyword.FindString(match[6])}
			if number, observable := strings.CutPrefix(match[4], "Level "); observable {
				c.Level = int(number[0] - '0')
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// The page and the list for programs have the same clauses, without a gap, and each test of the
// list exists.
func TestClauses(t *testing.T) {
	t.Parallel()
	page, err := fs.ReadFile(root, "spec/idempotent-requests.md")
	require.NoError(t, err)
	inPage, err := clauses(string(page))
	require.NoError(t, err)
	content, err := fs.ReadFile(root, "spec/clauses.yaml")
	require.NoError(t, err)
	var listed []clause
	require.NoError(t, yaml.Unmarshal(content, &listed))
	for i := range inPage {
		require.Less(t, i, len(listed))
		inPage[i].Check = listed[i].Check
	}
	require.Equal(t, listed, inPage)
	require.Equal(t, strings.Count(string(page), "\n### IR-"), len(inPage), "a clause has no anchor")

	for i, c := range listed {
		require.Equal(t, fmt.Sprintf("IR-%d", i+1), c.ID)
		require.NotEmpty(t, c.Keyword, c.ID)
		require.LessOrEqual(t, c.Level, 5, c.ID)
		require.NotEmpty(t, c.Check, c.ID)
		for _, named := range c.Check {
			source, err := fs.ReadFile(root, path.Clean(named.File))
			require.NoError(t, err, c.ID)
			require.Regexp(t, `(?m)^func `+named.Test+`\(`, string(source), c.ID)
		}
	}
}

func TestClauses_invalid(t *testing.T) {
	t.Parallel()
	const good = "## Key\n\n<a id=\"ir-1\"></a>\n\n### IR-1: A title\n\nLevel 2, form. A server MUST NOT do it.\n\n*Reason:* it fails.\n\n## Next\n"
	parsed, err := clauses(good)
	require.NoError(t, err)
	require.Equal(t, []clause{{ID: "IR-1", Level: 2, Class: "form", Keyword: "MUST", Title: "A title"}}, parsed)
	for name, edit := range map[string][2]string{
		"another number":    {"### IR-1", "### IR-2"},
		"no level":          {"Level 2, ", ""},
		"no class":          {"Level 2, form", "Level 2"},
		"another class":     {"form", "money"},
		"no reason":         {"*Reason:* it fails.\n\n", ""},
		"another paragraph": {"*Reason:*", "More.\n\n*Reason:*"},
	} {
		_, err := clauses(strings.Replace(good, edit[0], edit[1], 1))
		require.ErrorContains(t, err, "a clause has another form", name)
	}
}
