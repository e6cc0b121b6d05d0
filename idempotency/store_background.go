package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The statements of waiters, operators and background commands, which list keys of all
// accounts and change each by account and id (R16, R20).

// stepSQL names the step that continues a key (R18), by immutable functions, for Citus. With
// array_position, unlike = ANY, the planner expects that most keys match, so it reads an
// index in order up to the LIMIT.
const stepSQL = `get_byte(params_hash, 0)::text || '/' || operation || '/' || recovery_point`

const pollSQL = `
SELECT awaited.account_id, awaited.id, awaited.change
  FROM idempotency_keys AS k
  JOIN unnest($1::uuid[], $2::uuid[], $3::text[]) AS awaited (account_id, id, change)
    ON awaited.account_id = k.account_id AND awaited.id = k.id
 WHERE k.recovery_point = 'finished'
    OR (awaited.change IN ('status', 'end') AND k.needs_review_at IS NOT NULL)
    OR (awaited.change = 'status' AND k.action_required_at IS NOT NULL)
    OR (
        awaited.change = 'turn'
        AND (k.locked_at IS NULL OR k.locked_at NOT BETWEEN now() - $4::interval AND now() + $4::interval)
        AND k.last_run_at NOT BETWEEN now() - $5::interval AND now() + $4::interval
    )`

func (s *store) poll(ctx context.Context, keys []awaitedKey) ([]awaitedKey, error) {
	accounts, ids, changes := make([]uuid.UUID, len(keys)), make([]uuid.UUID, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		accounts[i], ids[i], changes[i] = key.AccountID, key.ID, string(key.Change)
	}
	return collect(ctx, s, pgx.RowToStructByPos[awaitedKey], pollSQL, accounts, ids, changes, s.lockTimeout, takeoverPause)
}

const statusesSQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
  JOIN unnest($2::uuid[], $3::uuid[]) AS wanted (account_id, id)
    ON wanted.account_id = k.account_id AND wanted.id = k.id`

const stuckSQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
 WHERE k.finished_at IS NULL
   AND (
        k.needs_review_at IS NOT NULL
        OR (
            k.needs_review_at IS NULL AND k.action_required_at IS NULL
            AND k.last_run_at NOT BETWEEN now() - $2::interval AND now() + $1::interval
            AND (k.locked_at IS NULL OR k.locked_at NOT BETWEEN now() - $1::interval AND now() + $1::interval)
        )
   )
 ORDER BY k.last_run_at
 LIMIT $3`

// byKeySQL searches all accounts for the zero UUID. The array makes the planner use both
// unique indexes, which begin with the account (R20).
const byKeySQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
 WHERE k.account_id = ANY(ARRAY(
           SELECT id
             FROM accounts
            WHERE $4::uuid IN (id, '00000000-0000-0000-0000-000000000000')
       ))
   AND (k.id = $2 OR k.idempotency_key = $3)
 ORDER BY (k.id = $2) DESC, k.created_at
 LIMIT 10`

// candidate is a key that a background command has listed.
type candidate struct {
	AccountID, ID uuid.UUID
	At            time.Time // its last run, or its end
	Attempts      int       // of the completer, including this one
}

// dueSQL lists the keys that are due, of each account in turn, so that none delays another.
// The inner LIMIT bounds the sort after a long outage.
func dueSQL(condition string) string {
	return `
WITH due AS (
    SELECT account_id, id, last_run_at, completer_attempt + (action_required_at IS NULL)::integer AS attempts
      FROM idempotency_keys
     WHERE finished_at IS NULL AND needs_review_at IS NULL
       AND ` + condition + `
       AND array_position($1::text[], ` + stepSQL + `) IS NOT NULL
     ORDER BY last_run_at
     LIMIT 100 * $2
)
SELECT account_id, id, last_run_at, attempts
  FROM due
 ORDER BY row_number() OVER (PARTITION BY account_id ORDER BY last_run_at), last_run_at
 LIMIT $2`
}

// abandonedSQL lists the keys whose grace is over. The first condition on last_run_at is for the
// index, the second is the backoff: it doubles with each attempt, up to $5. 20 doublings fit
// an interval.
var abandonedSQL = dueSQL(`action_required_at IS NULL
       AND last_run_at NOT BETWEEN now() - $4::interval AND now() + $3::interval
       AND last_run_at NOT BETWEEN
           now() - least($4::interval * 2 ^ least(completer_attempt, 20), greatest($5::interval, $4::interval))
           AND now() + $3::interval
       AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $3::interval AND now() + $3::interval)`)

// actionRequiredSQL lists the keys that have waited $4 since their last run. A run ends the
// wait when they are $5 old: they are due at once, and then after each $6.
var actionRequiredSQL = dueSQL(`action_required_at IS NOT NULL
       AND (
            last_run_at NOT BETWEEN now() - $4::interval AND now() + $3::interval
            OR (
                created_at <= now() - $5::interval
                AND last_run_at <= greatest(created_at + $5::interval, now() - $6::interval)
            )
       )`)

// abandoned returns the keys of both kinds in turn.
func (s *store) abandoned(ctx context.Context, config CompleterConfig, steps []string) (due []candidate, err error) {
	idle, err := collect(ctx, s, pgx.RowToStructByPos[candidate], abandonedSQL, steps, config.Limit, s.lockTimeout, config.Grace, maxBackoff)
	if err != nil {
		return nil, err
	}
	// The lease of a run that still waits must end before the timeout.
	timeout := config.ActionTimeout - s.lockTimeout
	waiting, err := collect(ctx, s, pgx.RowToStructByPos[candidate], actionRequiredSQL,
		steps, config.Limit, s.lockTimeout, actionPollGraces*config.Grace, timeout, config.Grace)
	for i := range max(len(idle), len(waiting)) {
		due = append(due, idle[min(i, len(idle)):min(i+1, len(idle))]...)
		due = append(due, waiting[min(i, len(waiting)):min(i+1, len(waiting))]...)
	}
	return due, err
}

// claimAbandonedSQL counts an attempt of the completer and starts its backoff, unless the
// key has changed since it was listed (R16). It takes no lease.
const claimAbandonedSQL = `
UPDATE idempotency_keys
   SET completer_attempt = completer_attempt + (action_required_at IS NULL)::integer,
       last_run_at       = now()
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL AND needs_review_at IS NULL
   AND last_run_at = $3
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $4::interval AND now() + $4::interval)
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL`

// polledSQL lists the old keys that ran within the grace and far more often than the
// completer would run them.
const polledSQL = `
SELECT account_id, id, last_run_at, 0
  FROM idempotency_keys
 WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NULL
   AND last_run_at > now() - $1::interval
   AND created_at NOT BETWEEN now() - $2::interval AND now() + $3::interval
   AND attempt > 2 * $4::bigint
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL
 LIMIT $6`

const markNeedsReviewSQL = `
UPDATE idempotency_keys
   SET needs_review_at = now()
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL AND needs_review_at IS NULL
   AND array_position($3::text[], ` + stepSQL + `) IS NOT NULL`

const requeueSQL = `
UPDATE idempotency_keys
   SET needs_review_at   = NULL,
       completer_attempt = 0
 WHERE account_id = $1 AND id = $2
   AND finished_at IS NULL
   AND array_position($3::text[], ` + stepSQL + `) IS NOT NULL`

// expiredSQL lists the finished keys past their retention, from $3: until VACUUM, the
// index keeps the entries of deleted rows, which each batch would read again.
const expiredSQL = `
SELECT account_id, id, finished_at, 0
  FROM idempotency_keys
 WHERE finished_at <= now() - $1::interval
   AND finished_at >= $3
 ORDER BY finished_at
 LIMIT $2`

// deleteSQL deletes keys of one account, and keeps what rejects their reuse (R17). An
// unfinished key stays, because it has no finished_at (R16).
const deleteSQL = `
WITH deleted AS (
    DELETE FROM idempotency_keys
     WHERE account_id = $1
       AND id IN (
           SELECT id
             FROM idempotency_keys
            WHERE account_id = $1
              AND id = ANY($2::uuid[])
              AND finished_at <= now() - $3::interval
              FOR UPDATE SKIP LOCKED
       )
    RETURNING account_id, id, operation, request_path, created_at, finished_at
)
INSERT INTO expired_keys (account_id, id, operation, request_path, created_at, finished_at)
SELECT * FROM deleted
ON CONFLICT DO NOTHING`

func (s *store) delete(ctx context.Context, retention time.Duration, keys []candidate) (deleted int, err error) {
	byAccount := map[uuid.UUID][]uuid.UUID{}
	for _, key := range keys {
		byAccount[key.AccountID] = append(byAccount[key.AccountID], key.ID)
	}
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{} // one transaction
		for accountID, ids := range byAccount {
			batch.Queue(deleteSQL, accountID, ids, retention).Exec(func(tag pgconn.CommandTag) error {
				deleted += int(tag.RowsAffected())
				return nil
			})
		}
		return conn.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// keyExpired returns the [*KeyExpiredError] of a reaped key (R17) or [ErrNotFound].
func (s *store) keyExpired(ctx context.Context, accountID, id uuid.UUID, key Key) error {
	expired := &KeyExpiredError{Key: StoredKey{AccountID: accountID, ID: id, Key: key, Point: Finished}}
	k := &expired.Key
	err := s.queryRow(ctx, `
SELECT operation, request_path, created_at, finished_at, lost
  FROM expired_keys
 WHERE account_id = $1 AND id = $2`, []any{accountID, id}, &k.Operation, &k.Path, &k.CreatedAt, &k.FinishedAt, &expired.Lost)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	return expired
}

const expireSQL = `
INSERT INTO expired_keys (account_id, id, operation, request_path, created_at, finished_at, lost)
VALUES ($1, $2, $3, $4, $5, now(), true)
ON CONFLICT DO NOTHING`

func (s *store) exec(ctx context.Context, query string, arguments ...any) (changed bool, err error) {
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, query, arguments...)
		changed = tag.RowsAffected() > 0
		return err
	})
	return changed, err
}

// unfinishedSQL reads ages. That of a time in the future, of a clock that ran ahead, is its
// distance, so that it alerts as well.
const unfinishedSQL = `
SELECT operation, recovery_point, count(*), greatest(now() - min(created_at), max(created_at) - now()),
       greatest(
           now() - min(last_run_at) FILTER (WHERE completer_attempt = 0),
           max(last_run_at) FILTER (WHERE completer_attempt = 0) - now(),
           interval '0'
       )
  FROM idempotency_keys
 WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NULL
 GROUP BY operation, recovery_point
 ORDER BY operation, recovery_point`

const needsReviewSQL = "SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL AND needs_review_at IS NOT NULL"

const oldestActionRequiredSQL = `
SELECT greatest(now() - min(created_at), max(created_at) - now(), interval '0')
  FROM idempotency_keys
 WHERE finished_at IS NULL AND needs_review_at IS NULL AND action_required_at IS NOT NULL`

const oldestFinishedSQL = "SELECT greatest(now() - min(finished_at), interval '0') FROM idempotency_keys WHERE finished_at IS NOT NULL"
