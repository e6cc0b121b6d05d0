package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
)

// RecoveryPoint names how far a request has come.
type RecoveryPoint string

// The recovery points of the engine.
const (
	Started  RecoveryPoint = "started" // never stored, because the first step commits with the claim
	Finished RecoveryPoint = "finished"
)

// Response is replayed byte for byte (R14, the same bytes).
type Response struct {
	Status  int // 200 to 499
	Headers map[string]string
	Body    []byte
}

// StoredKey is the public part of a key's row. Its times are the database's.
type StoredKey struct {
	AccountID, ID  uuid.UUID
	Key            Key
	Operation      string
	Path           string
	Point          RecoveryPoint
	Runs           int // so far
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Idle           time.Duration // since UpdatedAt
	FinishedAt     *time.Time    // nil while unfinished
	Leased         bool          // a run holds the key
	ClockAhead     bool          // a time of the key is in the future
	ActionRequired bool          // the last run ended with ErrActionRequired
	LastError      string        // of the last run
	ResponseCode   int           // 0 while unfinished
	Expired        bool          // emptied by the reaper or an operator: only operation, path and times are known
	Lost           bool          // expired, and what the request created is lost
}

// The states of a key.
const (
	StateInProgress     = "in_progress"     // a run holds the key
	StateWaiting        = "waiting"         // unfinished, and no run holds the key
	StateActionRequired = "requires_action" // waiting, and an action is required before the next run
	StateFinished       = "finished"        // the response is stored
	StateExpired        = "expired"         // the key was used, and its row is emptied
)

// State returns the state of the key, which is one of the constants above.
func (k StoredKey) State() string {
	switch {
	case k.Expired:
		return StateExpired
	case k.Point == Finished:
		return StateFinished
	case k.Leased:
		return StateInProgress
	case k.ActionRequired:
		return StateActionRequired
	default:
		return StateWaiting
	}
}

// keyRow is a key's whole row.
type keyRow struct {
	StoredKey
	Params, Fingerprint []byte
	Token               uuid.UUID
	Headers             map[string]string
	Body                []byte
}

func (k *keyRow) response() Response { return Response{k.ResponseCode, k.Headers, k.Body} }

// keyColumns are the fields of StoredKey in their order; $1 is the length of a lease.
const keyColumns = `
       k.account_id, k.id, coalesce(k.idempotency_key, ''), k.operation, k.request_path, k.recovery_point, k.runs,
       k.created_at, k.updated_at, now() - k.updated_at, k.finished_at,
       coalesce(k.locked_at BETWEEN now() - $1::interval AND now() + $1::interval, false),
       greatest(k.created_at, k.updated_at, k.locked_at, k.finished_at) > now() + $1::interval,
       k.action_required_at IS NOT NULL, coalesce(k.last_error, ''), coalesce(k.response_code, 0),
       k.expired_at IS NOT NULL, k.lost`

const findSQL = `
SELECT` + keyColumns + `,
       k.request_params, k.fingerprint, k.lease_token, k.response_headers, k.response_body
  FROM idempotency_keys AS k
 WHERE k.account_id = $2 AND k.id = $3`

// find returns a key's row or [ErrNotFound]. The row is never nil.
func (s *store) find(ctx context.Context, accountID, id uuid.UUID) (*keyRow, error) {
	var key keyRow
	err := s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, _ := conn.Query(ctx, findSQL, s.leaseDuration, accountID, id) // CollectExactlyOneRow returns its error
		key, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[keyRow])
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return &key, err
}

// KeyExpiredError means that the key was used and its row is emptied, so it never executes again (R17,
// used for ever).
type KeyExpiredError struct{ Key StoredKey }

func (e *KeyExpiredError) Error() string {
	return "the idempotency key has expired; it was used for " + e.Key.Operation
}

// list returns the keys that a condition selects. The arguments of the condition begin with $2.
func (s *store) list(ctx context.Context, condition string, arguments ...any) ([]StoredKey, error) {
	return postgres.Collect(ctx, s.pool, "list keys", pgx.RowToStructByPos[StoredKey], `
SELECT`+keyColumns+`
  FROM idempotency_keys AS k`+condition, append([]any{s.leaseDuration}, arguments...)...)
}
