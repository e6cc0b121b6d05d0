package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var updateNeighbours = flag.Bool("update", false, "write the table of ../neighbours.md again")

func TestAgainst_rules(t *testing.T) {
	t.Parallel()
	all, err := neighbours()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, c := range clauses() {
		known[c.id] = true
	}
	for name, n := range all {
		require.NotEmpty(t, n.Title+n.Name+n.URL+n.Read, name)
		for id, r := range n.rules {
			require.True(t, known[id], id)
			require.Contains(t, []relation{ruleSame, ruleDiffers, ruleWeaker, ruleOpen, ruleConflict}, r.Relation, "%s %s", name, id)
			require.Equal(t, r.judged(), r.Keyword != "", "%s %s has a keyword if it is judged", name, id)
			require.False(t, r.Relation == ruleWeaker && r.Keyword == must, "%s %s", name, id)
			require.False(t, r.Relation == ruleConflict && r.Note == "", "%s %s: a conflict is explained", name, id)
		}
	}
	_, err = against("rfc")
	require.ErrorContains(t, err, "there are acp, draft, ucp")
}

// A clause is judged with the other document's keyword, or not at all.
func TestAgainst_clauses(t *testing.T) {
	t.Parallel()
	acp, err := against("acp")
	require.NoError(t, err)
	changed := acp.clauses(clauses())
	require.Len(t, changed, len(clauses()))
	require.Equal(t, should, changed[26-1].keyword, "the mark of a replay")
	require.ErrorContains(t, changed[34-1].check(t.Context(), nil), "has the contrary: an expired key is a new request")
	require.ErrorContains(t, changed[49-1].check(t.Context(), nil), "leaves it open")
	require.Nil(t, changed[18-1].check, "not observable")

	ucp, err := against("ucp")
	require.NoError(t, err)
	require.Equal(t, dialect{Reused: 409, Verdict: "none", RetryAfter: "none"}, ucp.dialect(dialect{}))
	require.Equal(t, 400, ucp.dialect(dialect{Reused: 400}).Reused, "the profile file precedes")
}

const (
	tableBegin = "<!-- neighbours:begin -->\n"
	tableEnd   = "<!-- neighbours:end -->"
)

// The form of a server that follows a document is no difference from it, so -strict passes.
func TestAgainst_dialect(t *testing.T) {
	t.Parallel()
	all, err := neighbours()
	require.NoError(t, err)
	for name, n := range all {
		s := newTestSuite(t, newServer(t))
		s.judgeBy(n)
		require.Empty(t, s.info("file").Dialect, name)
		s = newTestSuite(t, newServer(t))
		s.p.Dialect.Reused = 418
		s.judgeBy(n)
		require.Equal(t, "418", s.info("file").Dialect, name)
	}
}

// The table of ../neighbours.md is that of against.yaml.
func TestAgainst_page(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "neighbours.md")
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	head, rest, _ := strings.Cut(string(page), tableBegin)
	_, tail, found := strings.Cut(rest, tableEnd)
	require.True(t, found)
	want := head + tableBegin + neighbourTable(t) + tableEnd + tail
	if *updateNeighbours {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(page), "go -C spec/conformance test -run TestAgainst_page -args -update")
}

func neighbourTable(t *testing.T) string {
	t.Helper()
	all, err := neighbours()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join("..", "clauses.yaml"))
	require.NoError(t, err)
	var listed []struct{ ID, Class, Title string }
	require.NoError(t, yaml.Unmarshal(content, &listed))
	names := []string{"draft", "acp", "ucp"}
	var b strings.Builder
	b.WriteString("| clause | class |")
	for _, name := range names {
		fmt.Fprintf(&b, " %s |", all[name].Title)
	}
	b.WriteString("\n| --- | --- | --- | --- | --- |\n")
	var silent []string
	for _, c := range listed {
		cells := make([]string, 0, len(names))
		said := false
		for _, name := range names {
			r, ok := all[name].rules[c.ID]
			said = said || ok
			cells = append(cells, cell(r, ok))
		}
		link := fmt.Sprintf("[%s](idempotent-requests.md#%s)", c.ID, strings.ToLower(c.ID))
		if !said {
			silent = append(silent, link)
			continue
		}
		fmt.Fprintf(&b, "| %s %s | %s | %s |\n", link, c.Title, c.Class, strings.Join(cells, " | "))
	}
	fmt.Fprintf(&b, "\nNone of the three has a rule for %s.\n", strings.Join(silent, ", "))
	return b.String()
}

func cell(r rule, ok bool) string {
	if !ok {
		return "–"
	}
	text := map[relation]string{
		ruleSame: r.Keyword, ruleDiffers: r.Keyword + ", in another form", ruleWeaker: r.Keyword + ", weaker", ruleOpen: "open", ruleConflict: "**conflict**",
	}[r.Relation]
	if r.Section != "" {
		text += " (" + r.Section + ")"
	}
	if r.Note != "" {
		text += ": " + r.Note
	}
	return text
}
