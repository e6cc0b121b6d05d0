package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

// OperatorAction describes an operator's action for the audit record, which is written first.
type OperatorAction struct {
	Actor  string
	Reason string
}

// Retry resumes an unfinished key. The completer attempts it again, too.
func (s *Service) Retry(ctx context.Context, accountID, keyID uuid.UUID, action OperatorAction) (idempotency.Result, error) {
	rejected := idempotency.Result{KeyID: keyID}
	key, _, err := s.unfinished(ctx, accountID, keyID)
	if err != nil {
		return rejected, err
	}
	if err := s.auditAction(ctx, key, "key.retry", action); err != nil {
		return rejected, err
	}
	if err := s.Engine.Requeue(ctx, accountID, keyID, s.Operations()); err != nil {
		return rejected, err
	}
	return s.Resume(ctx, accountID, keyID)
}

// Resolve ends an unfinished key with a stored response, which the operator does not
// choose. A charge or refund that the provider has is recorded. Otherwise the intent is
// cancelled, and only then does the order fail (R23). A refund fails only if none can be in
// flight. A payment in process cannot be resolved, nor can an added operation without
// [Registration.Resolve].
func (s *Service) Resolve(ctx context.Context, accountID, keyID uuid.UUID, action OperatorAction) (idempotency.Result, error) {
	rejected := idempotency.Result{KeyID: keyID}
	key, registered, err := s.unfinished(ctx, accountID, keyID)
	if err != nil {
		return rejected, err
	}
	if registered.Resolve == nil {
		return rejected, ErrNotResolvable
	}
	if err := s.auditAction(ctx, key, "key.resolve", action); err != nil {
		return rejected, err
	}
	return s.Engine.Resume(ctx, accountID, keyID, []idempotency.Operation{registered.Resolve(key)})
}

// ExpireKey rejects retries of a charged order whose rows are lost (R17). Otherwise a retry
// charges again when the provider's keys have expired. The key must not exist.
func (s *Service) ExpireKey(ctx context.Context, accountID, keyID uuid.UUID, createdAt time.Time) error {
	return s.Engine.Expire(ctx, accountID, keyID, createOrder{}.Name(), "/v1/orders", createdAt)
}

// unfinished returns a key that an operator can change now, with its operation. A refusal
// is no action, so it comes before the audit record.
func (s *Service) unfinished(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.Status, Registration, error) {
	key, err := s.Engine.Status(ctx, accountID, keyID)
	switch {
	case errors.Is(err, idempotency.ErrNotFound), err == nil && key.FinishedAt != nil:
		return key, Registration{}, ErrNothingToDo
	case err != nil:
		return key, Registration{}, err
	case key.Leased:
		return key, Registration{}, idempotency.ErrInProgress
	}
	registered, known := s.registrations().find(key.Operation)
	if known {
		_, known = registered.Operation.Steps(&idempotency.Run{}).From[key.Point]
	}
	if !known {
		err = fmt.Errorf("%w: operation %q, recovery point %q", idempotency.ErrNewerVersion, key.Operation, key.Point) // R18
	}
	return key, registered, err
}

func (s *Service) auditAction(ctx context.Context, key idempotency.Status, name string, action OperatorAction) error {
	_, err := s.Pool.Exec(ctx, insertAuditRecord+auditValues, uuid.Must(uuid.NewV7()), key.AccountID, name, "idempotency_key", key.ID.String(),
		map[string]string{"by": action.Actor, "reason": action.Reason}, nil)
	if err != nil {
		return fmt.Errorf("audit record: %w", postgres.Translate(err))
	}
	return nil
}

// AuditRecord is an entry of the audit log.
type AuditRecord struct {
	Action    string
	Resource  string          // order, refund or idempotency_key
	Data      json.RawMessage // a JSON object
	ClientIP  string          // "" without a client
	CreatedAt time.Time
}

// KeyHistory has the resources of a key and their audit records.
type KeyHistory struct {
	Order   *Order        // nil if there is none, as for another operation or lost rows
	Refund  *Refund       // of that order, if the key created a refund
	Records []AuditRecord // of the resource and the key, oldest first
}

// History returns the history of a key, which may be reaped.
func History(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, key idempotency.Key) (KeyHistory, error) {
	var history KeyHistory
	created := orderID(accountID, key)
	order := created
	switch r, err := findRefund(ctx, pool, accountID, refundID(accountID, key)); {
	case err == nil:
		history.Refund, created, order = &r.Refund, r.ID, r.OrderID
	case !errors.Is(err, ErrNotFound):
		return KeyHistory{}, err
	}
	switch o, err := findOrder(ctx, pool, accountID, order); {
	case err == nil:
		history.Order = &o.Order
	case !errors.Is(err, ErrNotFound):
		return KeyHistory{}, err
	}
	rows, _ := pool.Query(ctx, `
SELECT action,
       resource_type,
       data,
       coalesce(host(request_ip), ''),
       created_at
  FROM audit_records
 WHERE account_id = $1
   AND (resource_type, resource_id) IN (('order', $2), ('refund', $2), ('idempotency_key', $3))
 ORDER BY created_at, id`, accountID, created.String(), idempotency.KeyID(accountID, key).String())
	var err error
	if history.Records, err = pgx.CollectRows(rows, pgx.RowToStructByPos[AuditRecord]); err != nil {
		return KeyHistory{}, fmt.Errorf("read audit records: %w", postgres.Translate(err))
	}
	return history, nil
}
