// Package findings keeps what a check of our records has found until it is resolved, or an operator
// acknowledges it. Otherwise a finding of one night would be forgotten as soon as the next check does
// not reach as far back.
package findings

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations/audit"
)

// Finding needs an operator: it is neither resolved nor acknowledged.
type Finding struct {
	AccountID uuid.UUID // uuid.Nil if it concerns no account
	ID        uuid.UUID
	Kind      string
	Data      json.RawMessage
	FoundAt   time.Time // the first time
}

// Queue queues the INSERT of a finding and returns its id, which derives from the kind and the objects
// that it concerns. The same finding again replaces its data and is open again if it was resolved. An
// acknowledged one stays acknowledged. data is a struct or a map, without personal data.
func Queue(tx postgres.Queuer, accountID uuid.UUID, kind string, data any, objects ...string) uuid.UUID {
	id := idempotency.DeriveID("finding", accountID, idempotency.Key(kind+" "+strings.Join(objects, " ")))
	tx.Queue(`
INSERT INTO discrepancies (account_id, id, kind, data)
VALUES ($1, $2, $3, $4)
    ON CONFLICT (account_id, id) DO UPDATE
   SET data        = excluded.data,
       resolved_at = NULL`, accountID, id, kind, data)
	return id
}

// Open returns all findings, the oldest first.
func Open(ctx context.Context, pool *pgxpool.Pool) ([]Finding, error) {
	return postgres.Collect(ctx, pool, "read findings", pgx.RowToStructByPos[Finding], `
SELECT account_id, id, kind, data, found_at
  FROM discrepancies
 WHERE resolved_at IS NULL
   AND acknowledged_at IS NULL
 ORDER BY found_at, id`)
}

// Count returns the number of findings by kind.
func Count(ctx context.Context, pool *pgxpool.Pool) (map[string]int, error) {
	counts := map[string]int{}
	var kind string
	var n int
	rows, _ := pool.Query(ctx, `
SELECT kind, count(*)
  FROM discrepancies
 WHERE resolved_at IS NULL
   AND acknowledged_at IS NULL
 GROUP BY kind`) // ForEachRow returns its error
	_, err := pgx.ForEachRow(rows, []any{&kind, &n}, func() error {
		counts[kind] = n
		return nil
	})
	return counts, postgres.Translate(err)
}

// Resolve ends a finding whose cause a later check did not find any more.
func Resolve(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) error {
	_, err := pool.Exec(ctx, `
UPDATE discrepancies
   SET resolved_at = now()
 WHERE account_id = $1
   AND id = $2
   AND resolved_at IS NULL`, accountID, id)
	if err != nil {
		err = fmt.Errorf("resolve a finding: %w", postgres.Translate(err))
	}
	return err
}

// Acknowledge ends a finding that an operator has dealt with, and writes the audit record. It reports
// false if there is no such finding.
func Acknowledge(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID, by audit.Operator) (acknowledged bool, err error) {
	open, err := Open(ctx, pool)
	for _, f := range open {
		if f.ID != id {
			continue
		}
		tag, err := pool.Exec(ctx, `
WITH acknowledged AS (
    UPDATE discrepancies
       SET acknowledged_at = now(),
           acknowledged_by = $3,
           note            = $4
     WHERE account_id = $1
       AND id = $2
       AND resolved_at IS NULL
       AND acknowledged_at IS NULL
    RETURNING account_id, id, kind
)`+audit.Insert+`
SELECT $5, account_id, 'discrepancy.acknowledge', 'discrepancy', id::text,
       jsonb_build_object('kind', kind, 'by', $3::text, 'note', $4::text)
  FROM acknowledged`, f.AccountID, id, by.Actor, by.Reason, uuid.Must(uuid.NewV7()))
		if err != nil {
			return false, fmt.Errorf("acknowledge a finding: %w", postgres.Translate(err))
		}
		return tag.RowsAffected() == 1, nil
	}
	return false, err
}
