//go:build pages

package setup_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/setup"
)

var update = flag.Bool("update", false, "write the generated parts of docs/configuration.md and .env.example")

const (
	page       = "../../../docs/configuration.md"
	exampleEnv = "../../../.env.example"
)

func TestGenerated(t *testing.T) {
	t.Parallel()
	t.Run("the table in docs/configuration.md", func(t *testing.T) {
		t.Parallel()
		const begin, end = "<!-- env:begin -->\n", "<!-- env:end -->\n"
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		before, rest, found := strings.Cut(string(text), begin)
		require.True(t, found, "docs/configuration.md has no line %s", begin)
		table, after, found := strings.Cut(rest, end)
		require.True(t, found, "docs/configuration.md has no line %s", end)
		if *update {
			require.NoError(t, os.WriteFile(page, []byte(before+begin+setup.MarkdownEnv()+end+after), 0o644))
			return
		}
		require.Equal(t, setup.MarkdownEnv(), table, "run make generate")
	})
	t.Run(".env.example", func(t *testing.T) {
		t.Parallel()
		if *update {
			require.NoError(t, os.WriteFile(exampleEnv, []byte(setup.EnvTemplate()), 0o644))
			return
		}
		text, err := os.ReadFile(exampleEnv)
		require.NoError(t, err)
		require.Equal(t, setup.EnvTemplate(), string(text), "run make generate")
	})
}
