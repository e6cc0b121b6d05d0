package citus_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// form is one that Citus rejects, although all tables of a schema are on one server, because it plans each
// statement as if they were on several.
type form struct {
	reason   string
	examples []string // TestStatements_rejected executes them
	found    func(statement string) bool
}

// forms returns the forms that the program's statements do without, so that it runs on a schema that Citus has
// placed (docs/scaling.md).
func forms(t *testing.T, pool *pgxpool.Pool) []form {
	t.Helper()
	anyOf := func(query string) string {
		rows, err := pool.Query(t.Context(), query)
		require.NoError(t, err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return `\b(?:` + strings.Join(names, "|") + ")"
	}
	functions := func(condition string) string {
		return anyOf("SELECT DISTINCT proname::text FROM pg_proc WHERE prokind = 'f' AND proname ~ '^[a-z]' AND "+condition) + `\(`
	}
	columns := func(condition string) string {
		return anyOf("SELECT DISTINCT attname::text FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "+
			"WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND "+condition) + `\b`
	}
	table := anyOf("SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'") + `\b`
	readsTable := regexp.MustCompile(`(?i)\b(?:FROM|JOIN) ` + table)
	mutable := regexp.MustCompile(functions("provolatile <> 'i'"))
	volatile := regexp.MustCompile(functions("provolatile = 'v'"))
	ofColumn := regexp.MustCompile(columns("atttypid = 'timestamptz'::regtype") + `\s*[-+]|` +
		functions("provolatile = 's'") + `[^()]*` + columns("true"))
	constraint := regexp.MustCompile(`(?s)\bALTER TABLE[^;]*,\s*ADD (?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)\b|` +
		`\bALTER TABLE[^;]*\bADD (?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)[^;]*,\s*(?:ADD|DROP|ALTER)\b|` +
		`\bADD COLUMN[^,;]*\b(?:CHECK|REFERENCES|UNIQUE|PRIMARY)\b`)
	return []form{
		{
			"INSERT … SELECT reads a table only in a CTE, because Citus adds a condition on a distribution column, which it lacks",
			[]string{"INSERT INTO audit_records (account_id, id, action, resource_type, resource_id) SELECT account_id, id, 'a', 'b', 'c' FROM orders"},
			func(s string) bool { return readsTable.MatchString(clauses(s, insertSelect)) },
		},
		{
			"no now() within CASE or coalesce in an UPDATE or DELETE, or in DO UPDATE, because Citus evaluates functions before it sends the statement",
			[]string{
				"UPDATE orders SET erased_at = CASE WHEN status = 'paid' THEN now() END",
				"UPDATE api_keys SET revoked_at = coalesce(revoked_at, now())",
				"INSERT INTO provider_event_place AS p (read_until) VALUES (now()) ON CONFLICT (singleton) DO UPDATE SET read_until = excluded.read_until WHERE p.read_until < now()",
			},
			func(s string) bool {
				return mutable.MatchString(conditionals(clauses(s, modification)) + clauses(s, conflict))
			},
		},
		{
			"no VOLATILE function in an UPDATE or DELETE, because replicas of a row would differ",
			[]string{"UPDATE orders SET erased_at = clock_timestamp()"},
			func(s string) bool { return volatile.MatchString(clauses(s, modification)) },
		},
		{
			"no STABLE function or operator of a column in an UPDATE or DELETE, because Citus evaluates it before it has the row",
			[]string{"DELETE FROM provider_events WHERE received_at + interval '31 days' < now()"},
			func(s string) bool { return ofColumn.MatchString(clauses(s, modification)) },
		},
		{
			"RETURNING has only IMMUTABLE functions, because replicas of a row could return different values",
			[]string{"WITH ended AS (DELETE FROM staged_jobs RETURNING jsonb_build_object('kind', kind) AS data) SELECT data FROM ended"},
			func(s string) bool { return mutable.MatchString(clauses(s, returning)) },
		},
		{
			"a constraint is added in a statement of its own, because Citus gives it a name on each server",
			[]string{"ALTER TABLE refunds ADD COLUMN n int, ADD CONSTRAINT n_is_positive CHECK (n > 0)"},
			constraint.MatchString,
		},
	}
}

// The test searches the source for these forms.
func TestStatements(t *testing.T) {
	t.Parallel()
	forms := forms(t, dbtest.New(t))
	for _, f := range forms {
		for _, example := range f.examples {
			require.True(t, f.found(example), example)
		}
	}
	statements := sourceTexts(t, filepath.Join("..", ".."))
	require.Greater(t, len(statements), 300)
	for place, statement := range statements {
		for _, f := range forms {
			require.False(t, f.found(statement), "%s: %s\n%s", place, f.reason, statement)
		}
	}
}

var (
	insertSelect = regexp.MustCompile(`\bINSERT INTO [^()]*\([^()]*\)\s*SELECT\b`)
	returning    = regexp.MustCompile(`\bRETURNING\b`)
	conflict     = regexp.MustCompile(`\bDO UPDATE\b`)
	modification = regexp.MustCompile(`\bUPDATE [a-z_]+(?: AS)?(?: [a-z])?\s+SET\b|\bDELETE FROM\b|^\s*[a-z_]+\s*=\s`)
)

// clauses returns the parts of a text that begin as the pattern says. Each ends with the parenthesis or the
// statement that contains it.
func clauses(text string, pattern *regexp.Regexp) (parts string) {
	for _, at := range pattern.FindAllStringIndex(text, -1) {
		depth, end := 0, len(text)
		for i, c := range text[at[1]:] {
			switch c {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth < 0 || c == ';' {
				end = at[1] + i
				break
			}
		}
		parts += text[at[0]:end] + "\n"
	}
	return parts
}

var bracket = regexp.MustCompile(`(?i)\bcase\b|\bend\b|\bcoalesce\(|\(|\)`)

// conditionals returns the parts of a text that are within CASE or coalesce.
func conditionals(text string) (parts string) {
	var open []bool // whether each bracket is conditional
	from := 0
	within := 0
	for _, at := range bracket.FindAllStringIndex(text, -1) {
		if within > 0 {
			parts += text[from:at[1]]
		}
		from = at[1]
		switch token := strings.ToLower(text[at[0]:at[1]]); token {
		case "case", "coalesce(", "(":
			open = append(open, token != "(")
			if token != "(" {
				within++
			}
		default:
			if len(open) == 0 {
				continue
			}
			if open[len(open)-1] {
				within--
			}
			open = open[:len(open)-1]
		}
	}
	return parts
}

// sourceTexts returns the string constants and the SQL files of the program, by their places.
func sourceTexts(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasSuffix(entry.Name(), "test") ||
			slices.Contains([]string{".git", "node_modules", "lab", "spec", "examples", "playground"}, entry.Name())):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".sql"):
			text, err := os.ReadFile(path)
			found[path] = string(text)
			return err
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			texts, err := constants(path)
			maps.Copy(found, texts)
			return err
		}
		return nil
	}))
	return found
}

// constants returns the string constants of a file. In a concatenation, "?" stands for what is not one.
func constants(path string) (map[string]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	var value func(expression ast.Expr) string
	value = func(expression ast.Expr) string {
		switch e := expression.(type) {
		case *ast.BinaryExpr:
			return value(e.X) + value(e.Y)
		case *ast.BasicLit:
			if text, err := strconv.Unquote(e.Value); err == nil {
				return text
			}
		}
		return "?"
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch e := node.(type) {
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				found[fmt.Sprint(files.Position(e.Pos()))] = value(e)
				return false // its constants are complete only together
			}
		case *ast.BasicLit:
			if e.Kind == token.STRING {
				found[fmt.Sprint(files.Position(e.Pos()))] = value(e)
			}
		}
		return true
	})
	return found, nil
}
