//go:build pages

package app_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/internal/app"
)

var update = flag.Bool("update", false, "write .env.example")

func TestGenerated(t *testing.T) {
	t.Parallel()
	const file = "../../../.env.example"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(app.EnvTemplate()), 0o644))
		return
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, app.EnvTemplate(), string(text), "run make generate")
}
