package dbtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, dsn string }{
		{"URL", "postgres://ann:s3cret@db.test:6432/app?sslmode=disable"},
		{"URL without a database", "postgresql://ann:s3cret@db.test:6432?sslmode=disable"},
		{"keywords", "host=db.test port=6432 user=ann password=s3cret dbname=app sslmode=disable"},
		{"keywords without a database", "host=db.test port=6432 user=ann password=s3cret sslmode=disable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn, err := withDatabase(tt.dsn, "t_1")
			require.NoError(t, err)
			config, err := pgxpool.ParseConfig(dsn)
			require.NoError(t, err)
			require.Equal(t, "t_1", config.ConnConfig.Database)
			require.Equal(t, "db.test", config.ConnConfig.Host)
			require.EqualValues(t, 6432, config.ConnConfig.Port)
			require.Equal(t, "s3cret", config.ConnConfig.Password)
		})
	}
	t.Run("a broken one does not show its password", func(t *testing.T) {
		t.Parallel()
		_, err := withDatabase("postgres://ann:s3cret@db.test:port/app", "t_1")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
	})
}
