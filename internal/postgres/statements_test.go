package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/postgres"
)

func TestCleanText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "no recipient", postgres.CleanText("no recipient", 500))
	require.Equal(t, "nul ?, invalid ?, cut é", postgres.CleanText("nul \x00, invalid \xff\xfe, cut "+strings.Repeat("é", 9), 23))
	require.Empty(t, postgres.CleanText("x", 0))
}
