package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The statements of waiters, operators and background commands. The latter list keys
// of all accounts and change each by account and id, if it is unchanged (R16, R20).

// stepSQL names the step that continues a key. A version without that step does not
// change the key (R18), see [knownSteps]. All functions are immutable, as a distributed
// PostgreSQL requires in an UPDATE. array_position, unlike = ANY, makes the planner expect
// that most keys match, so it reads an index in order up to the LIMIT.
const stepSQL = `get_byte(params_hash, 0)::text || '/' || operation || '/' || recovery_point`

// pollSQL returns the awaited keys whose waiters should wake up.
const pollSQL = `
SELECT awaited.account_id,
       awaited.id,
       awaited.change
  FROM idempotency_keys AS k
  JOIN unnest($1::uuid[], $2::uuid[], $3::text[]) AS awaited (account_id, id, change)
    ON awaited.account_id = k.account_id
   AND awaited.id = k.id
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
		accounts[i], ids[i], changes[i] = key.accountID, key.id, string(key.change)
	}
	return collect(ctx, s, func(row pgx.CollectableRow) (key awaitedKey, err error) {
		return key, row.Scan(&key.accountID, &key.id, &key.change)
	}, pollSQL, accounts, ids, changes, s.lockTimeout, takeoverPause)
}

const statusesSQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
  JOIN unnest($2::uuid[], $3::uuid[]) AS wanted (account_id, id)
    ON wanted.account_id = k.account_id
   AND wanted.id = k.id`

const stuckSQL = `
SELECT` + statusColumns + `
  FROM idempotency_keys AS k
 WHERE k.finished_at IS NULL
   AND (
        k.needs_review_at IS NOT NULL
        OR (
            k.needs_review_at IS NULL
            AND k.action_required_at IS NULL
            AND k.last_run_at NOT BETWEEN now() - $2::interval AND now() + $1::interval
            AND (k.locked_at IS NULL OR k.locked_at NOT BETWEEN now() - $1::interval AND now() + $1::interval)
        )
   )
 ORDER BY k.last_run_at
 LIMIT $3`

// byKeySQL searches all accounts. The array makes the planner use both unique indexes,
// which begin with the account (R20). A key with that id comes first.
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

func (s *store) statuses(ctx context.Context, query string, arguments ...any) ([]Status, error) {
	list, err := collect(ctx, s, func(row pgx.CollectableRow) (status Status, err error) {
		return status, row.Scan(status.fields()...)
	}, query, append([]any{s.lockTimeout}, arguments...)...)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return list, nil
}

// candidate is a key that a background command has listed, with the columns of the
// lists in their order.
type candidate struct {
	AccountID, ID uuid.UUID
	At            time.Time // its last run, or its end if it is finished
	Attempts      int       // of the completer, including this one; 0 if they are not counted
}

func (s *store) candidates(ctx context.Context, query string, arguments ...any) ([]candidate, error) {
	return collect(ctx, s, pgx.RowToStructByPos[candidate], query, arguments...)
}

// abandonedSQL lists the keys whose grace is over: of each account in turn the longest
// idle first, so that the many keys of one account do not delay those of another one. The
// inner LIMIT bounds the sort after a long outage. The first condition on last_run_at is
// for the index, the second is the backoff: it doubles with each attempt, up to $2, and 20
// doublings fit an interval. A time later than $3 from now is of a clock that ran ahead,
// see takeOver.
const abandonedSQL = `
WITH due AS (
    SELECT account_id,
           id,
           last_run_at,
           completer_attempt + 1 AS attempts
      FROM idempotency_keys
     WHERE finished_at IS NULL
       AND needs_review_at IS NULL
       AND action_required_at IS NULL
       AND last_run_at NOT BETWEEN now() - $1::interval AND now() + $3::interval
       AND last_run_at NOT BETWEEN
           now() - least($1::interval * 2 ^ least(completer_attempt, 20), greatest($2::interval, $1::interval))
           AND now() + $3::interval
       AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $3::interval AND now() + $3::interval)
       AND array_position($4::text[], ` + stepSQL + `) IS NOT NULL
     ORDER BY last_run_at
     LIMIT $6
)
SELECT account_id,
       id,
       last_run_at,
       attempts
  FROM due
 ORDER BY row_number() OVER (PARTITION BY account_id ORDER BY last_run_at), last_run_at
 LIMIT $5`

// actionRequiredSQL lists the keys that have waited $1 since their last run, in the same
// order. When they are $4 old, a run ends the wait: they are due at once, and then after
// each $5.
const actionRequiredSQL = `
WITH due AS (
    SELECT account_id,
           id,
           last_run_at
      FROM idempotency_keys
     WHERE finished_at IS NULL
       AND needs_review_at IS NULL
       AND action_required_at IS NOT NULL
       AND (
            last_run_at NOT BETWEEN now() - $1::interval AND now() + $2::interval
            OR (
                created_at <= now() - $4::interval
                AND last_run_at <= greatest(created_at + $4::interval, now() - $5::interval)
            )
       )
       AND array_position($3::text[], ` + stepSQL + `) IS NOT NULL
     ORDER BY last_run_at
     LIMIT $7
)
SELECT account_id,
       id,
       last_run_at,
       0
  FROM due
 ORDER BY row_number() OVER (PARTITION BY account_id ORDER BY last_run_at), last_run_at
 LIMIT $6`

// abandoned returns the keys that are due, those that require an action in turn with the
// others.
func (s *store) abandoned(ctx context.Context, config CompleterConfig, steps []string) (due []candidate, err error) {
	const sorted = 100 // keys for each listed one
	idle, err := s.candidates(ctx, abandonedSQL, config.Grace, maxBackoff, s.lockTimeout, steps, config.Limit, sorted*config.Limit)
	if err != nil {
		return nil, err
	}
	// The lease of a run that still waits must end before the timeout.
	timeout := config.ActionTimeout - s.lockTimeout
	waiting, err := s.candidates(ctx, actionRequiredSQL,
		actionPollGraces*config.Grace, s.lockTimeout, steps, timeout, config.Grace, config.Limit, sorted*config.Limit)
	for i := range max(len(idle), len(waiting)) {
		due = append(due, idle[min(i, len(idle)):min(i+1, len(idle))]...)
		due = append(due, waiting[min(i, len(waiting)):min(i+1, len(waiting))]...)
	}
	return due, err
}

// claimAbandonedSQL counts an attempt of the completer, unless the key has changed
// since it was listed, and starts its backoff. It takes no lease.
const claimAbandonedSQL = `
UPDATE idempotency_keys
   SET completer_attempt = completer_attempt + (action_required_at IS NULL)::integer,
       last_run_at       = now()
 WHERE account_id = $1
   AND id = $2
   AND finished_at IS NULL
   AND needs_review_at IS NULL
   AND last_run_at = $3
   AND (locked_at IS NULL OR locked_at NOT BETWEEN now() - $4::interval AND now() + $4::interval)
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL`

func (s *store) claimAbandoned(ctx context.Context, key candidate, steps []string) (claimed bool, err error) {
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, claimAbandonedSQL, key.AccountID, key.ID, key.At, s.lockTimeout, steps)
		claimed = tag.RowsAffected() == 1
		return err
	})
	return claimed, err
}

// polledSQL lists the old keys that ran within the grace and far more often than the
// completer runs a key. A key that an operator has requeued is not among them. The age of
// a key that was created in the future is unknown, so it counts as old.
const polledSQL = `
SELECT account_id,
       id,
       last_run_at,
       0
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND needs_review_at IS NULL
   AND action_required_at IS NULL
   AND last_run_at > now() - $1::interval
   AND created_at NOT BETWEEN now() - $2::interval AND now() + $3::interval
   AND attempt > 2 * $4::bigint
   AND array_position($5::text[], ` + stepSQL + `) IS NOT NULL
 LIMIT $6`

const markNeedsReviewSQL = `
UPDATE idempotency_keys
   SET needs_review_at = now()
 WHERE account_id = $1
   AND id = $2
   AND finished_at IS NULL
   AND needs_review_at IS NULL
   AND array_position($3::text[], ` + stepSQL + `) IS NOT NULL`

const requeueSQL = `
UPDATE idempotency_keys
   SET needs_review_at   = NULL,
       completer_attempt = 0
 WHERE account_id = $1
   AND id = $2
   AND finished_at IS NULL
   AND array_position($3::text[], ` + stepSQL + `) IS NOT NULL`

// expiredSQL lists the finished keys past their retention, from $3: until VACUUM, the
// index keeps the entries of deleted rows, which each batch would read again.
const expiredSQL = `
SELECT account_id,
       id,
       finished_at,
       0
  FROM idempotency_keys
 WHERE finished_at <= now() - $1::interval
   AND finished_at >= $3
 ORDER BY finished_at
 LIMIT $2`

// deleteSQL deletes finished keys of one account and keeps what R17 needs. It skips
// locked rows. The schema ensures that only a finished key has a finished_at (R16).
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

func (s *store) delete(ctx context.Context, retention time.Duration, keys []candidate) (int, error) {
	byAccount := map[uuid.UUID][]uuid.UUID{}
	for _, key := range keys {
		byAccount[key.AccountID] = append(byAccount[key.AccountID], key.ID)
	}
	deleted := 0
	err := s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		for accountID, ids := range byAccount {
			batch.Queue(deleteSQL, accountID, ids, retention).Exec(func(tag pgconn.CommandTag) error {
				deleted += int(tag.RowsAffected())
				return nil
			})
		}
		return conn.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, err // the batch is one transaction
	}
	return deleted, nil
}

// keyExpired returns the [*KeyExpiredError] of a reaped key (R17), or else
// [ErrNotFound].
func (s *store) keyExpired(ctx context.Context, accountID, id uuid.UUID, key Key) error {
	k := Status{AccountID: accountID, ID: id, Key: key, Point: Finished}
	err := s.queryRow(ctx, `
SELECT operation,
       request_path,
       created_at,
       finished_at
  FROM expired_keys
 WHERE account_id = $1
   AND id = $2`, []any{accountID, id}, &k.Operation, &k.Path, &k.CreatedAt, &k.FinishedAt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return err
	default:
		return &KeyExpiredError{k}
	}
}

const expireSQL = `
INSERT INTO expired_keys (account_id, id, operation, request_path, created_at, finished_at)
VALUES ($1, $2, $3, $4, $5, now())
ON CONFLICT DO NOTHING`

const countExpiredSQL = `
SELECT count(*)
  FROM idempotency_keys
 WHERE finished_at <= now() - $1::interval`

func (s *store) exec(ctx context.Context, query string, arguments ...any) error {
	return s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, query, arguments...)
		return err
	})
}

func collect[T any](ctx context.Context, s *store, scan pgx.RowToFunc[T], query string, arguments ...any) (list []T, err error) {
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, query, arguments...) // CollectRows returns its error
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	return list, err
}

const unfinishedSQL = `
SELECT operation,
       recovery_point,
       count(*),
       now() - min(created_at),
       coalesce(now() - min(last_run_at) FILTER (WHERE completer_attempt = 0), interval '0')
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND needs_review_at IS NULL
   AND action_required_at IS NULL
 GROUP BY operation, recovery_point
 ORDER BY operation, recovery_point`

const needsReviewSQL = `
SELECT count(*)
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND needs_review_at IS NOT NULL`

const statsActionRequiredSQL = `
SELECT coalesce(now() - min(created_at), interval '0')
  FROM idempotency_keys
 WHERE finished_at IS NULL
   AND needs_review_at IS NULL
   AND action_required_at IS NOT NULL`

const oldestFinishedSQL = `
SELECT coalesce(now() - min(finished_at), interval '0')
  FROM idempotency_keys
 WHERE finished_at IS NOT NULL`
