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
// order failed (R23). A payment that is still processing can be neither. A refund
// that the provider has is recorded; another is failed only when nothing that was
// sent for it can still arrive there.
func (s *Service) Resolve(ctx context.Context, accountID, keyID uuid.UUID, act Act) (idempotency.Result, error) {
	if err := s.auditAct(ctx, accountID, keyID, "key.resolve", act); err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	last, err := lastRun(ctx, s.pool, accountID, keyID)
	if err != nil {
		return idempotency.Result{KeyID: keyID}, err
	}
	return s.engine.Resume(ctx, accountID, keyID, func(name string) (idempotency.Operation, bool) {
		return named(name, createOrder{service: s, closing: true}, createRefund{service: s, closing: &last})
	})
}

// lastRun reads what close has to know of a key's last run. Another run may
// begin meanwhile; its attempt then differs.
func lastRun(ctx context.Context, pool *pgxpool.Pool, accountID, keyID uuid.UUID) (closing, error) {
	var last closing
	err := pool.QueryRow(ctx, `
SELECT attempt,
       last_run_at < now() - $3::interval
  FROM idempotency_keys
 WHERE account_id = $1
   AND id = $2`, accountID, keyID, sendUnderWay).Scan(&last.attempt, &last.quiet)
	if errors.Is(err, pgx.ErrNoRows) {
		return closing{}, ErrNotUnfinished
	}
	if err != nil {
		return closing{}, fmt.Errorf("read key: %w", postgres.Translate(err))
	}
	return last, nil
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
		return fmt.Errorf("audit record: %w", postgres.Translate(err))
	}
	if tag.RowsAffected() == 0 {
		return ErrNotUnfinished
	}
	return nil
}

// Record is an audit record.
type Record struct {
	Action    string
	Resource  string          // order, refund or idempotency_key
	Data      json.RawMessage // a JSON object
	ClientIP  string          // "" when no client asked
	CreatedAt time.Time
}

// Story is what a key made and what happened to it.
type Story struct {
	Order   Order
	Refund  *Refund  // of that order, when the key made a refund
	Records []Record // of what the key made and of the key, oldest first
}

// History returns the story of a key, which may be reaped.
func History(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, key idempotency.Key) (Story, error) {
	var story Story
	made := orderID(accountID, key)
	order := made
	switch r, err := findRefundRow(ctx, pool, accountID, refundID(accountID, key)); {
	case err == nil:
		story.Refund, made, order = &r.Refund, r.ID, r.OrderID
	case !errors.Is(err, ErrNotFound):
		return Story{}, err
	}
	o, err := find(ctx, pool, accountID, order)
	if err != nil {
		return Story{}, err
	}
	story.Order = o.Order
	rows, err := pool.Query(ctx, `
SELECT action,
       resource_type,
       data,
       coalesce(host(request_ip), ''),
       created_at
  FROM audit_records
 WHERE account_id = $1
   AND (resource_type, resource_id) IN (('order', $2), ('refund', $2), ('idempotency_key', $3))
 ORDER BY created_at, id`, accountID, made.String(), idempotency.KeyID(accountID, key).String())
	if err != nil {
		return Story{}, fmt.Errorf("read audit records: %w", postgres.Translate(err))
	}
	story.Records, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Record])
	if err != nil {
		return Story{}, fmt.Errorf("read audit records: %w", postgres.Translate(err))
	}
	return story, nil
}
