package crash_test

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// boundariesFile has for each flow its name and then its boundaries, indented and
// numbered from 1.
const boundariesFile = "testdata/boundaries.txt"

func TestBoundaries(t *testing.T) {
	t.Parallel()
	program := build(t)
	recorded := make([]string, len(flows()))
	t.Run("recorded", func(t *testing.T) {
		for i, f := range flows() {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				h := newHarness(t, program, f.age())
				h.setup(f)
				exchanges := &interceptor{}
				victim := h.startVictim(f.actor, exchanges, noFault())
				got := h.await(victim)
				require.True(t, victim.allowed(got), "%v", got)
				recorded[i] = f.name + "\n"
				for n, name := range exchanges.recorded() {
					recorded[i] += fmt.Sprintf("%4d  %s\n", n+1, name)
				}
				waits := f.customers != nil && f.acted == "" && !f.old  // for the customer
				partly := f.request == cancelOf && f.actor == completer // the key of the cancel is not due
				staged := f.request == refundOf && f.actor == webhook   // the worker does the rest
				if !waits && !partly && !staged {
					require.Empty(t, h.unfinishedKeys())
				}
			})
		}
	})
	text := strings.Join(recorded, "")
	if *update {
		require.NoError(t, os.WriteFile(boundariesFile, []byte(text), 0o644))
		return
	}
	want := read(t, boundariesFile)
	for _, f := range allFlows() {
		if !f.exists() {
			want = regexp.MustCompile("(?m)^"+f.name+"\n(?: .*\n)*").ReplaceAllString(want, "")
		}
	}
	require.Equal(t, want, text,
		"the boundaries have changed: go test ./internal/crash -run TestBoundaries -args -update")
}

func recordedBoundaries(t testing.TB) map[string][]string {
	t.Helper()
	recorded := map[string][]string{}
	var flow string
	lines := bufio.NewScanner(strings.NewReader(read(t, boundariesFile)))
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, " ") {
			flow = line
			continue
		}
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		recorded[flow] = append(recorded[flow], name)
	}
	return recorded
}

func read(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(content)
}

// request is what a child sends to PostgreSQL in one round trip.
type request struct{ prepares, executes []string } // summaries of the statements

// name returns the name of the boundary, or "" for a request outside of the flow.
func (r request) name() string {
	switch {
	case len(r.executes) == 1 && r.executes[0] == "", // the pool's ping, which is a comment
		slices.ContainsFunc(slices.Concat(r.executes, r.prepares), readiness.MatchString):
		return ""
	case len(r.executes) > 0:
		return strings.Join(r.executes, "; ")
	case len(r.prepares) > 0:
		return "prepare " + strings.Join(r.prepares, "; ")
	default:
		return "close" // of a prepared statement
	}
}

// readiness matches the checks of the monitor, which run each second, and of new sessions.
var readiness = regexp.MustCompile(`transaction_read_only|has_table_privilege|goose_db_version`)

var (
	comment     = regexp.MustCompile(`--.*`)
	verb        = regexp.MustCompile(`(?i)\b(INSERT INTO|UPDATE|DELETE FROM|FROM)\s+([a-z_]+)`)
	setList     = regexp.MustCompile(`(?is)\bSET\b(.*?)\b(?:WHERE|FROM)\b`)
	setColumn   = regexp.MustCompile(`(?m)(?:^|,)\s*([a-z_]+)\s*=`)
	transaction = regexp.MustCompile(`(?i)^(BEGIN|COMMIT|ROLLBACK)`)
)

func summary(query string) string {
	query = strings.TrimSpace(comment.ReplaceAllString(query, ""))
	if check := readiness.FindString(query); check != "" {
		return check // that of privileges reads no table, but a list, as reconcile does
	}
	if word := transaction.FindString(query); word != "" {
		return strings.ToUpper(word)
	}
	found := verb.FindStringSubmatch(query)
	if found == nil {
		return query
	}
	action, table := strings.ToUpper(found[1]), found[2]
	if action == "FROM" {
		action = "SELECT"
	}
	text := action + " " + table
	if list := setList.FindStringSubmatch(query); action == "UPDATE" && list != nil {
		var columns []string
		for _, column := range setColumn.FindAllStringSubmatch("\n"+list[1], -1) {
			columns = append(columns, column[1])
		}
		text += " SET " + strings.Join(columns, ", ")
	}
	return text
}
