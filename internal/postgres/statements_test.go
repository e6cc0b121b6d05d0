package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/postgres"
)

func TestText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "no recipient", postgres.Text("no recipient", 500))
	require.Equal(t, "nul ?, invalid ?, cut é", postgres.Text("nul \x00, invalid \xff\xfe, cut "+strings.Repeat("é", 9), 23))
	require.Empty(t, postgres.Text("x", 0))
}
