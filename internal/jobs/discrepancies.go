package jobs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Discrepancy is the kind of a difference between our records and the provider's, with which an operator has to
// deal. No worker can, so it has failed from the start, and its last_error is what was found.
const Discrepancy = "discrepancy"

// Report queues the INSERT of a discrepancy and returns its id, which derives from what was found and the objects
// that it concerns. The same discrepancy again replaces its arguments, and stays acknowledged if it is. accountID
// is uuid.Nil if it concerns no account. args is a struct or a map, without personal data.
func Report(tx postgres.Queuer, accountID uuid.UUID, found string, args any, objects ...string) uuid.UUID {
	id := uuid.NewHash(sha256.New(), accountID, []byte(Discrepancy+" "+found+" "+strings.Join(objects, " ")), 8)
	tx.Queue(`
INSERT INTO staged_jobs (account_id, id, kind, args, last_error, failed_at)
VALUES ($1, $2, 'discrepancy', $3, $4, now())
    ON CONFLICT (account_id, id) DO UPDATE
   SET args = excluded.args`, accountID, id, args, found)
	return id
}

// open has all conditions of the index of failed jobs.
const open = `
  FROM staged_jobs
 WHERE kind = 'discrepancy'
   AND failed_at IS NOT NULL
   AND acknowledged_at IS NULL`

// Open returns the discrepancies that are not acknowledged, the oldest first.
func Open(ctx context.Context, pool *pgxpool.Pool) ([]Job, error) {
	return postgres.Collect(ctx, pool, "read discrepancies", pgx.RowToStructByPos[Job], "SELECT "+columns+open+`
 ORDER BY created_at, id`)
}

// Found is a number of discrepancies that are not acknowledged.
type Found struct {
	What string
	Open int
}

// CountOpen counts the discrepancies that are not acknowledged, by what was found.
func CountOpen(ctx context.Context, pool *pgxpool.Pool) ([]Found, error) {
	return postgres.Collect(ctx, pool, "count discrepancies", pgx.RowToStructByPos[Found], "SELECT last_error, count(*)"+open+`
 GROUP BY last_error`)
}

// Resolve deletes discrepancies that do not exist any more.
func Resolve(ctx context.Context, pool *pgxpool.Pool, ids ...uuid.UUID) error {
	_, err := pool.Exec(ctx, `
DELETE FROM staged_jobs
 WHERE kind = 'discrepancy'
   AND failed_at IS NOT NULL
   AND id = ANY($1)`, ids)
	if err != nil {
		err = fmt.Errorf("resolve discrepancies: %w", postgres.Translate(err))
	}
	return err
}
