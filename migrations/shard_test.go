package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

// Who shards by account (R20) needs account_id in every unique constraint and
// every foreign key: neither can be held across machines.
func TestSchema_canBeShardedByAccount(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	tests := map[string]struct {
		query string
		want  []string
	}{
		"a table without the account": {
			query: `
SELECT relname::text
  FROM pg_class
 WHERE relnamespace = 'public'::regnamespace
   AND relkind = 'r'
   AND relname <> 'goose_db_version'
   AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'account_id' AND attnotnull)
 ORDER BY 1`,
			want: []string{"accounts"},
		},
		"a unique index without the account": {
			query: `
SELECT indexrelid::regclass::text
  FROM pg_index
  JOIN pg_class AS c ON c.oid = indrelid
 WHERE indisunique
   AND relnamespace = 'public'::regnamespace
   AND relname NOT IN ('accounts', 'goose_db_version')
   AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = indrelid AND attname = 'account_id' AND attnum = ANY (indkey))
 ORDER BY 1`,
			want: []string{},
		},
		"a foreign key without the account on both sides": {
			query: `
SELECT conname::text
  FROM pg_constraint
 WHERE contype = 'f'
   AND confrelid <> 'accounts'::regclass
   AND NOT EXISTS (
       SELECT
         FROM unnest(conkey, confkey) AS k (ours, theirs)
         JOIN pg_attribute AS a ON a.attrelid = conrelid AND a.attnum = ours
         JOIN pg_attribute AS b ON b.attrelid = confrelid AND b.attnum = theirs
        WHERE a.attname = 'account_id'
          AND b.attname = 'account_id')
 ORDER BY 1`,
			want: []string{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rows, err := pool.Query(t.Context(), test.query)
			require.NoError(t, err)
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Equal(t, test.want, found)
		})
	}
}
