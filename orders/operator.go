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
)

// Act is something that a person does to a stuck key. It leaves an audit record
// before anything is done.
type Act struct {
	By     string // who
	Reason string // why
}

func (a Act) check() error {
	if a.By == "" || a.Reason == "" {
		return errors.New("orders: an operator's act needs who and why")
	}
	return nil
}

// Retry runs an unfinished key once more, as [Service.Resume] does, and gives it
// back to the completer if it had been given up.
func (s *Service) Retry(ctx context.Context, accountID, keyID uuid.UUID, act Act) (idempotency.Result, error) {
	if err := s.auditAct(ctx, accountID, keyID, "key.retry", act); err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	if err := s.engine.Reopen(ctx, accountID, keyID); err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	return s.Resume(ctx, accountID, keyID)
}

// Resolve ends an unfinished key with a stored answer. What it answers is not
// the operator's to choose: if the card was charged the order is paid and the
// answer is its 201; else the intent is cancelled first, and only then is the
// order failed (R23). A payment that is still processing can be neither.
func (s *Service) Resolve(ctx context.Context, accountID, keyID uuid.UUID, act Act) (idempotency.Result, error) {
	if err := s.auditAct(ctx, accountID, keyID, "key.resolve", act); err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	return s.engine.Resume(ctx, accountID, keyID, func(name string) (idempotency.Operation, bool) {
		op := createOrder{service: s, closing: true}
		return op, name == op.Name()
	})
}

func (s *Service) auditAct(ctx context.Context, accountID, keyID uuid.UUID, action string, act Act) error {
	if err := act.check(); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	// The key must exist: what an operator mistyped is no act.
	tag, err := s.pool.Exec(ctx, `
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data
)
SELECT $1,
       account_id,
       $4,
       'idempotency_key',
       id::text,
       $5
  FROM idempotency_keys
 WHERE account_id = $2
   AND id = $3
   AND recovery_point <> 'finished'`,
		id, accountID, keyID, action, map[string]string{"by": act.By, "reason": act.Reason})
	if err != nil {
		return fmt.Errorf("audit record: %w", idempotency.Interpret(err))
	}
	if tag.RowsAffected() == 0 {
		return ErrNotUnfinished
	}
	return nil
}

// Record is an audit record.
type Record struct {
	Action    string
	Resource  string          // order or idempotency_key
	Data      json.RawMessage // a JSON object
	ClientIP  string          // "" when no client asked
	CreatedAt time.Time
}

// History returns the order that a key made and the audit records of both,
// oldest first. The key may be reaped.
func History(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, key idempotency.Key) (Order, []Record, error) {
	o, err := find(ctx, pool, accountID, orderID(accountID, key))
	if err != nil {
		return Order{}, nil, err
	}
	rows, err := pool.Query(ctx, `
SELECT action,
       resource_type,
       data,
       coalesce(host(request_ip), ''),
       created_at
  FROM audit_records
 WHERE account_id = $1
   AND (resource_type, resource_id) IN (('order', $2), ('idempotency_key', $3))
 ORDER BY created_at, id`, accountID, o.ID.String(), idempotency.KeyID(accountID, key).String())
	if err != nil {
		return Order{}, nil, fmt.Errorf("read audit records: %w", idempotency.Interpret(err))
	}
	records, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Record])
	if err != nil {
		return Order{}, nil, fmt.Errorf("read audit records: %w", idempotency.Interpret(err))
	}
	return o.Order, records, nil
}
