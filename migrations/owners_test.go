package migrations_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// owners has the package of each table. Those below it belong to it.
var owners = map[string]string{
	"accounts":             "internal/accounts",
	"api_keys":             "internal/accounts",
	"audit_records":        "internal/audit",
	"goose_db_version":     "migrations",
	"idempotency_keys":     "idempotency",
	"orders":               "orders",
	"provider_event_place": "orders/reconcile",
	"provider_events":      "orders/reconcile",
	"refunds":              "orders",
	"staged_jobs":          "internal/jobs",
}

// readers has the files that read a table of another package, and why a function of its owner would not do.
var readers = map[string]string{
	"orders/erase.go idempotency_keys":             "the keys of an order are read under the order's lock",
	"orders/reconcile/intents.go idempotency_keys": "an order and its key are read in one snapshot",
	"orders/reconcile/sync.go idempotency_keys":    "the unfinished keys of refunds are read under the order's lock",
	"orders/reconcile/inbox.go accounts":           "the list is unread since the first account, in one statement",
	"orders/service.go accounts":                   "the latest order is read from the index of each account",
}

// Only the package of a table has statements on it, so that who changes the table finds them all.
func TestOwners(t *testing.T) {
	t.Parallel()
	statement := regexp.MustCompile(`\b(DELETE FROM|FROM|JOIN|INTO|UPDATE)\s+(ONLY\s+)?([a-z_]+)\b`)
	root, used, unseen := os.DirFS(".."), map[string]bool{}, maps.Clone(owners)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		folder := path.Base(name)
		_, module := fs.Stat(root, path.Join(name, "go.mod"))
		switch {
		case entry.IsDir() && name != "." && (module == nil || name == "cmd/playground" || name == "examples" ||
			folder[0] == '.' || strings.HasSuffix(folder, "test") || folder == "testdata" || folder == "node_modules"):
			return fs.SkipDir
		case entry.IsDir(), path.Ext(name) != ".go", strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(root, name)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			text, ok := node.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			for _, match := range statement.FindAllStringSubmatch(text.Value, -1) {
				owner, known := owners[match[3]]
				reader := name + " " + match[3]
				if !known || strings.HasPrefix(path.Dir(name)+"/", owner+"/") {
					delete(unseen, match[3])
					continue
				}
				require.Contains(t, readers, reader, "the table belongs to %s", owner)
				require.Contains(t, []string{"FROM", "JOIN"}, match[1], "%s writes a table of %s", name, owner)
				used[reader] = true
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, unseen, "each table is found with its owner")
	require.Len(t, used, len(readers), "each exception is needed: %v", used)
}
