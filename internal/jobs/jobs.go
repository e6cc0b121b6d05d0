package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Job is a row that is due or claimed.
type Job struct {
	AccountID uuid.UUID
	ID        uuid.UUID
	Attempt   int
	OrderID   string // "" until the job is claimed, or if it names none
	Args      []byte // JSON, nil until the job is claimed
}

func (w *Worker) due(ctx context.Context, until time.Time) ([]Job, error) {
	query, arguments := w.Due, []any{until, until.Add(clockAhead), max(batchSize, w.Concurrency)}
	if query == "" {
		query, arguments = dueSQL, append(arguments, w.Kind)
	}
	return postgres.Collect(ctx, w.Pool, "find due jobs", pgx.RowToStructByPos[Job], query, arguments...)
}

const dueSQL = "(" + selectDue + `
   AND run_at <= $1
 ORDER BY run_at
 LIMIT $3) UNION ALL (` + selectDue + `
   AND run_at > $2
 ORDER BY run_at
 LIMIT $3)
 LIMIT $3`

const selectDue = `
SELECT account_id, id, attempt, '', NULL
  FROM staged_jobs
 WHERE kind = $4
   AND failed_at IS NULL`

// clockAhead is longer than any backoff, so a run_at further in the future was set while the
// database's clock ran ahead, and the job is due (R8, the database's clock).
const clockAhead = 2 * maxBackoff

// claim reports false if another worker has the job or its row is locked. The statement is
// conditional, so any number of workers may claim (R16, unfinished keys stay).
func (w *Worker) claim(ctx context.Context, j *Job, lease time.Duration) (claimed bool, err error) {
	err = postgres.Translate(w.Pool.QueryRow(ctx, `
UPDATE staged_jobs
   SET attempt = attempt + 1,
       run_at  = now() + $4::interval
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND (run_at <= now() OR run_at > now() + $5::interval)
   AND failed_at IS NULL
RETURNING attempt,
          coalesce(args->>'order_id', ''),
          args`, j.AccountID, j.ID, j.Attempt, lease, clockAhead).Scan(&j.Attempt, &j.OrderID, &j.Args))
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, postgres.ErrLockTimeout):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("claim a job: %w", err)
	}
	return true, nil
}

// A statement that ends an attempt names its number, so a worker with an expired lease changes
// nothing.

func (w *Worker) delete(ctx context.Context, j Job) (held bool, err error) {
	return changeAudited(ctx, w.Pool, `
DELETE FROM staged_jobs
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL
`+returningOrder, w.Done, map[string]any{"attempt": j.Attempt}, j.AccountID, j.ID, j.Attempt)
}

const returningOrder = "RETURNING account_id, kind, 'order' AS resource, coalesce(args->>'order_id', id::text) AS resource_id"

// changeAudited changes a job or an endpoint and records it, in one statement.
func changeAudited(ctx context.Context, pool *pgxpool.Pool, change, action string, data any, arguments ...any) (changed bool, err error) {
	n := len(arguments)
	tag, err := pool.Exec(ctx, fmt.Sprintf(`
WITH changed AS (%s
)
INSERT INTO audit_records (account_id, id, action, resource_type, resource_id, data)
SELECT account_id, $%d, kind || $%d, resource, resource_id, $%d
  FROM changed`, change, n+1, n+2, n+3), append(arguments, uuid.Must(uuid.NewV7()), "."+action, data)...)
	return tag.RowsAffected() == 1, err
}

func (w *Worker) recordFailure(ctx context.Context, j Job, delay time.Duration, cause string, permanent bool) (held bool, err error) {
	const limit = 500 // characters, as the column's CHECK requires
	tag, err := w.Pool.Exec(ctx, `
UPDATE staged_jobs
   SET run_at     = now() + $4::interval,
       last_error = $5,
       failed_at  = now() + $6::interval
 WHERE account_id = $1
   AND id = $2
   AND attempt = $3
   AND failed_at IS NULL`, j.AccountID, j.ID, j.Attempt, delay, postgres.CleanText(withoutAddresses(cause), limit), postgres.NowIf(permanent))
	return tag.RowsAffected() == 1, err
}

var address = regexp.MustCompile(`\S*@\S*`)

func withoutAddresses(text string) string { return address.ReplaceAllString(text, "[removed]") }

// FailedJob is a job of any kind that has not succeeded, or an endpoint to which no events are sent. It needs
// an operator if FailedAt is set.
type FailedJob struct {
	AccountID, ID uuid.UUID
	Kind          string
	OrderID       string // "" if it names none
	Attempts      int
	LastError     string // without addresses
	Age           time.Duration
	FailedAt      *time.Time // nil if it will be tried again
}

const failedJobColumns = "account_id, id, kind, coalesce(args->>'order_id', ''), attempt, coalesce(last_error, ''), now() - created_at, failed_at"

// OfOrder returns the jobs of an order that have not succeeded, oldest first.
func OfOrder(ctx context.Context, pool *pgxpool.Pool, accountID, orderID uuid.UUID) ([]FailedJob, error) {
	return collectJobs(ctx, pool, "SELECT "+failedJobColumns+`
  FROM staged_jobs
 WHERE account_id = $1
   AND args->>'order_id' = $2::text
 ORDER BY created_at`, accountID, orderID.String())
}

func collectJobs(ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) ([]FailedJob, error) {
	jobs, err := postgres.Collect(ctx, pool, "list jobs", pgx.RowToStructByPos[FailedJob], query, arguments...)
	for i := range jobs {
		jobs[i].LastError = withoutAddresses(jobs[i].LastError)
	}
	return jobs, err
}

// ListFailed returns failed jobs, oldest failure first. A name, which is the id of a job or of an
// order, selects its jobs.
func ListFailed(ctx context.Context, pool *pgxpool.Pool, name string, limit int) ([]FailedJob, error) {
	return collectJobs(ctx, pool, "(SELECT "+failedJobColumns+`
  FROM staged_jobs
 WHERE failed_at IS NOT NULL
   AND $1 IN ('', id::text, args->>'order_id')
 ORDER BY failed_at
 LIMIT $2
)
UNION ALL
SELECT account_id, id, $3, '', attempt, coalesce(last_error, ''), now() - failing_since, disabled_at
  FROM event_endpoints
 WHERE disabled_at IS NOT NULL
   AND $1 IN ('', id::text)
 ORDER BY failed_at
 LIMIT $2`, name, limit, kindEndpoint)
}

const kindEndpoint = "endpoint"

// RetryFailed gives a failed job all attempts again or enables an endpoint, and reports whether it was still
// failed.
func RetryFailed(ctx context.Context, pool *pgxpool.Pool, j FailedJob, actor, reason string) (retried bool, err error) {
	change := `
UPDATE staged_jobs
   SET failed_at = NULL,
       attempt   = 0,
       run_at    = now()
 WHERE account_id = $1
   AND id = $2
   AND failed_at IS NOT NULL
` + returningOrder
	if j.Kind == kindEndpoint {
		change = `
UPDATE event_endpoints
   SET disabled_at   = NULL,
       attempt       = 0,
       run_at        = now(),
       failing_since = NULL
 WHERE account_id = $1
   AND id = $2
   AND disabled_at IS NOT NULL
RETURNING account_id, 'endpoint' AS kind, 'endpoint' AS resource, id::text AS resource_id`
	}
	retried, err = changeAudited(ctx, pool, change, "retry", map[string]any{"by": actor, "reason": reason}, j.AccountID, j.ID)
	if err != nil {
		err = fmt.Errorf("retry a job: %w", postgres.Translate(err))
	}
	return retried, err
}

// DeleteFailed deletes a job that can never succeed, and reports whether it was still failed.
func DeleteFailed(ctx context.Context, pool *pgxpool.Pool, j FailedJob, actor, reason string) (deleted bool, err error) {
	deleted, err = changeAudited(ctx, pool, `
DELETE FROM staged_jobs
 WHERE account_id = $1
   AND id = $2
   AND failed_at IS NOT NULL
`+returningOrder, "delete", map[string]any{"by": actor, "reason": reason}, j.AccountID, j.ID)
	if err != nil {
		err = fmt.Errorf("delete a job: %w", postgres.Translate(err))
	}
	return deleted, err
}

// Stats counts the jobs of a kind in all accounts, for metrics.
type Stats struct {
	Pending int
	Oldest  time.Duration // since the oldest pending job was staged, or 0
	Failed  int
}

// ReadStats counts the jobs of a kind. A job that was staged while the clock ran ahead counts with its
// distance in the future, so that it alerts. The query's last condition is always true, and makes
// PostgreSQL use the two partial indexes.
func ReadStats(ctx context.Context, pool *pgxpool.Pool, kind string) (s Stats, err error) {
	err = pool.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE failed_at IS NULL),
       greatest(
           now() - min(created_at) FILTER (WHERE failed_at IS NULL),
           max(created_at) FILTER (WHERE failed_at IS NULL) - now(),
           interval '0'
       ),
       count(failed_at)
  FROM staged_jobs
 WHERE kind = $1
   AND (failed_at IS NULL OR failed_at IS NOT NULL)`, kind).Scan(&s.Pending, &s.Oldest, &s.Failed)
	if err != nil {
		err = fmt.Errorf("count the jobs of kind %s: %w", kind, err)
	}
	return s, err
}
