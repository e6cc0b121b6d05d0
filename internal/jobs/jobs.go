package jobs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/postgres"
)

// Job is a row of staged_jobs.
type Job struct {
	AccountID uuid.UUID
	ID        uuid.UUID
	Kind      string
	Args      []byte // JSON that names what the job is about, without personal data
	Attempt   int    // incremented by each claim, so it is also the worker's fence
	LastError string // of the last attempt, "" while one runs; without addresses
	CreatedAt time.Time
	FailedAt  *time.Time // nil if it will be tried again
}

const columns = "account_id, id, kind, args, attempt, coalesce(last_error, ''), created_at, failed_at"

// StageTx queues the INSERT of a job in the transaction that it must follow. A job that exists stays as it is.
func StageTx(tx postgres.Queuer, accountID, id uuid.UUID, kind string, args any) {
	tx.Queue(insertJob+`
    ON CONFLICT DO NOTHING`, accountID, id, kind, args)
}

// RestageTx is StageTx, but a job that exists is due again: a worker that has claimed it loses it, because
// it may have done its work before this transaction.
func RestageTx(tx postgres.Queuer, accountID, id uuid.UUID, kind string, args any) {
	tx.Queue(insertJob+`
    ON CONFLICT (account_id, id) DO UPDATE
   SET run_at     = excluded.run_at,
       attempt    = CASE WHEN j.failed_at IS NULL THEN j.attempt + 1 ELSE 0 END,
       last_error = NULL, -- see Drain
       failed_at  = NULL`, accountID, id, kind, args)
}

const insertJob = `
INSERT INTO staged_jobs AS j (account_id, id, kind, args)
VALUES ($1, $2, $3, $4)`

// now returns the database's time. A run_at further ahead than a lease or a backoff was set while the
// database's clock ran ahead, so it is corrected (R8, the database's clock).
func (w *Worker) now(ctx context.Context) (now time.Time, err error) {
	err = w.Pool.QueryRow(ctx, `
WITH ahead AS (
    UPDATE staged_jobs
       SET run_at = now()
     WHERE kind = $1
       AND failed_at IS NULL
       AND run_at > now() + $2::interval
)
SELECT now()`, w.Kind, w.lease()+2*maxBackoff).Scan(&now)
	if err != nil {
		err = fmt.Errorf("read the database's time: %w", postgres.Translate(err))
	}
	return now, err
}

// claim leases up to limit jobs that were due at a time. Any number of workers may claim concurrently, because
// each skips what another has locked (R16, unfinished keys stay).
func (w *Worker) claim(ctx context.Context, at time.Time, limit int) ([]Job, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout) // a claim without a run would only delay the job
	defer cancel()
	return postgres.Collect(ctx, w.Pool, "claim jobs", pgx.RowToStructByPos[Job], `
UPDATE staged_jobs
   SET attempt    = attempt + 1,
       run_at     = now() + $1::interval,
       last_error = NULL
 WHERE ctid = ANY(ARRAY(
           SELECT ctid
             FROM staged_jobs
            WHERE kind = $2
              AND failed_at IS NULL
              AND run_at <= $3
            ORDER BY run_at
            LIMIT $4
              FOR UPDATE SKIP LOCKED
       ))
RETURNING `+columns, w.lease(), w.Kind, at, limit)
}

// A statement that ends an attempt names its number, so a worker with an expired lease changes
// nothing.

func (w *Worker) delete(ctx context.Context, j Job) (held bool, err error) {
	n, err := changeAudited(ctx, w.Pool, `
DELETE FROM staged_jobs
 WHERE account_id = $3
   AND id = $4
   AND attempt = $5
   AND failed_at IS NULL`, Done, map[string]any{"attempt": j.Attempt}, j.AccountID, j.ID, j.Attempt)
	return n == 1, err
}

// changeAudited changes jobs and records it at the orders that they name, in one statement.
func changeAudited(ctx context.Context, pool *pgxpool.Pool, change, action string, data any, arguments ...any) (changed int64, err error) {
	tag, err := pool.Exec(ctx, `
WITH changed AS (`+change+`
 RETURNING account_id,
           kind,
           last_error,
           coalesce(args->>'order_id', id::text) AS resource_id
)
`+audit.Insert+`
SELECT gen_random_uuid(), account_id, kind || $1, 'order', resource_id,
       CASE kind WHEN 'discrepancy' THEN jsonb_build_object('found', last_error) ELSE '{}' END || $2
  FROM changed`, append([]any{"." + action, data}, arguments...)...)
	if err != nil {
		err = fmt.Errorf("%s jobs: %w", action, postgres.Translate(err))
	}
	return tag.RowsAffected(), err
}

// recordFailure stores the error and the time of the next attempt. An attempt that ended as Misconfigured does not
// count, so the increment of its claim is undone.
func (w *Worker) recordFailure(ctx context.Context, j Job, delay time.Duration, cause error, outcome string) (held bool, err error) {
	const limit = 500 // characters, as the column's CHECK requires
	tag, err := w.Pool.Exec(ctx, `
UPDATE staged_jobs
   SET run_at     = now() + $4::interval,
       last_error = $5,
       failed_at  = now() + $6::interval,
       attempt    = attempt - $7::bool::int
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL`, j.AccountID, j.ID, j.Attempt, delay,
		postgres.CleanText(address.ReplaceAllString(w.Detail(cause), "[removed]"), limit), postgres.NowIf(outcome == Failed), outcome == Misconfigured)
	return tag.RowsAffected() == 1, err
}

var address = regexp.MustCompile(`\S*@\S*`)

// left returns the jobs of the worker's kind that were staged until a time. The last condition is that of ReadStats.
func (w *Worker) left(ctx context.Context, until time.Time) ([]Job, error) {
	return postgres.Collect(ctx, w.Pool, "read jobs", pgx.RowToStructByPos[Job], "SELECT "+columns+`
  FROM staged_jobs
 WHERE kind = $1
   AND created_at <= $2
   AND (failed_at IS NULL OR failed_at IS NOT NULL)`, w.Kind, until)
}

// With returns the account's jobs whose arguments contain args, except acknowledged ones, oldest first.
func With(ctx context.Context, db querier, accountID uuid.UUID, args map[string]any) ([]Job, error) {
	rows, _ := db.Query(ctx, "SELECT "+columns+`
  FROM staged_jobs
 WHERE account_id = $1
   AND args @> $2
   AND acknowledged_at IS NULL
 ORDER BY created_at`, accountID, args) // CollectRows returns its error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Job])
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, query string, arguments ...any) (pgx.Rows, error)
}

// ListFailed returns what needs an operator: discrepancies, and then the jobs that failed, oldest failure first.
func ListFailed(ctx context.Context, pool *pgxpool.Pool) ([]Job, error) {
	return postgres.Collect(ctx, pool, "list failed jobs", pgx.RowToStructByPos[Job], "SELECT "+columns+`
  FROM staged_jobs
 WHERE failed_at IS NOT NULL
   AND acknowledged_at IS NULL
 ORDER BY kind <> 'discrepancy', failed_at`)
}

// RetryFailed gives a failed job, or all of them if id is uuid.Nil, all attempts again, and returns how many.
// A discrepancy is none of them, because no worker can deal with it.
func RetryFailed(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID, by audit.Operator) (retried int64, err error) {
	return changeAudited(ctx, pool, `
UPDATE staged_jobs
   SET failed_at = NULL,
       attempt   = 0,
       run_at    = now()
 WHERE failed_at IS NOT NULL
   AND kind <> 'discrepancy'
   AND (id = $3 OR $3 = '00000000-0000-0000-0000-000000000000')`, "retry", by, id)
}

// DeleteFailed deletes a failed job that can never succeed, and returns 0 if there is none of this id. A discrepancy
// stays as acknowledged, because otherwise the next comparison would list it again.
func DeleteFailed(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID, by audit.Operator) (ended int64, err error) {
	ended, err = changeAudited(ctx, pool, `
UPDATE staged_jobs
   SET acknowledged_at = now()
 WHERE kind = 'discrepancy'
   AND failed_at IS NOT NULL -- for its index
   AND acknowledged_at IS NULL
   AND id = $3`, "acknowledge", by, id)
	if err == nil && ended == 0 {
		ended, err = changeAudited(ctx, pool, `
DELETE FROM staged_jobs
 WHERE kind <> 'discrepancy'
   AND failed_at IS NOT NULL
   AND id = $3`, "delete", by, id)
	}
	return ended, err
}

// Stats counts the jobs of a kind in all accounts, for metrics.
type Stats struct {
	Kind    string
	Pending int
	Oldest  time.Duration // since the oldest pending job was staged, or 0
	Failed  int
}

// ReadStats counts the jobs of these kinds, by kind. For a created_at in the future, the distance is the age, so that a
// wrong clock alerts, too. The query's last condition is always true, and makes
// PostgreSQL use the two partial indexes.
func ReadStats(ctx context.Context, pool *pgxpool.Pool, kinds ...string) (map[string]Stats, error) {
	counted, err := postgres.Collect(ctx, pool, "count jobs", pgx.RowToStructByPos[Stats], `
SELECT kind,
       count(*) FILTER (WHERE failed_at IS NULL),
       greatest(
           now() - min(created_at) FILTER (WHERE failed_at IS NULL),
           max(created_at) FILTER (WHERE failed_at IS NULL) - now(),
           interval '0'
       ),
       count(failed_at)
  FROM staged_jobs
 WHERE kind = ANY($1)
   AND (failed_at IS NULL OR failed_at IS NOT NULL)
 GROUP BY kind`, kinds)
	stats := map[string]Stats{}
	for _, s := range counted {
		stats[s.Kind] = s
	}
	return stats, err
}

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
