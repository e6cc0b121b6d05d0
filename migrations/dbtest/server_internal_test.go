package dbtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	url, err := withDatabase("postgresql://ann:s3cret@db.test:6432?sslmode=disable", "t_1")
	require.NoError(t, err)
	require.Equal(t, "postgresql://ann:s3cret@db.test:6432/t_1?sslmode=disable", url)
	_, err = withDatabase("postgres://ann:s3cret@db.test:port/app", "t_1")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cret")
}
