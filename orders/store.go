package orders

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/validation"
)

type orderRow struct {
	OrderRequest
	CreateAttempt, ConfirmAttempt int // numbers of the provider keys (R12)
	FailureCode, DeclineCode      *string
}

const selectOrder = `
SELECT id,
       status,
       amount,
       amount_refunded,
       currency,
       email,
       items,
       payment_intent_id,
       metadata,
       created_at,
       paid_at,
       failure_code,
       decline_code,
       payment_method,
       off_session,
       create_attempt,
       confirm_attempt,
       reference
  FROM orders`

func scanOrder(row pgx.CollectableRow) (orderRow, error) {
	o, err := pgx.RowToStructByName[orderRow](row)
	if o.FailureCode != nil {
		o.Failure = &Failure{Code: *o.FailureCode, DeclineCode: o.DeclineCode}
	}
	return o, err
}

func findOrder(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (orderRow, error) {
	return findRow(ctx, pool, scanOrder, selectOrder+`
 WHERE account_id = $1
   AND id = $2`, accountID, id)
}

func findRow[T any](ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[T], query string, arguments ...any) (T, error) {
	rows, _ := pool.Query(ctx, query, arguments...) // CollectExactlyOneRow returns its error
	row, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, operations.ErrNotFound
	}
	if err != nil {
		return row, fmt.Errorf("read: %w", postgres.Translate(err))
	}
	return row, nil
}

func mustExist(err error, what string, id uuid.UUID) error {
	if errors.Is(err, operations.ErrNotFound) {
		return fmt.Errorf("%s %s is missing", what, id)
	}
	return err
}

var endOfTime = operations.Timestamp{Time: time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)}

func findByReference(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, reference string) (orderRow, error) {
	return findRow(ctx, pool, scanOrder, selectOrder+`
 WHERE account_id = $1
   AND reference = $2
   AND failure_code IS NULL`, accountID, reference)
}

// LatestIntent returns the recorded intent of the account's latest order that has one, or "". A
// provider account that does not know it is not ours, so its empty answers prove nothing.
func (s *Service) LatestIntent(ctx context.Context, accountID uuid.UUID) (string, error) {
	id, err := findRow(ctx, s.config.Pool, pgx.RowTo[string], `
SELECT payment_intent_id
  FROM orders
 WHERE account_id = $1
   AND payment_intent_id IS NOT NULL
 ORDER BY created_at DESC, id DESC
 LIMIT 1`, accountID)
	if errors.Is(err, operations.ErrNotFound) {
		err = nil
	}
	return id, err
}

// List returns the account's orders, or those with the reference, newest first. after is the last
// of the page before, or uuid.Nil.
func (s *Service) List(ctx context.Context, accountID uuid.UUID, limit int, after uuid.UUID, reference string) iter.Seq2[Order, error] {
	last := Order{ID: uuid.Max, CreatedAt: endOfTime}
	if after != uuid.Nil {
		var err error
		if last, err = s.Get(ctx, accountID, after); err != nil {
			return failedList[Order](cursorError(err, "an order of this account"))
		}
	}
	where, arguments := "", []any{accountID, last.CreatedAt.Time, last.ID, limit}
	if reference != "" {
		where, arguments = " AND reference = $5", append(arguments, reference)
	}
	return list(ctx, s.config.Pool, scanOrder, func(o orderRow) Order { return o.Order }, selectOrder+`
 WHERE account_id = $1
   AND (created_at, id) < ($2, $3)`+where+`
 ORDER BY created_at DESC, id DESC
 LIMIT $4`, arguments...)
}

func cursorError(err error, what string) error {
	if errors.Is(err, operations.ErrNotFound) {
		return validation.Invalid("/after", validation.CodeNotFound, "must be the id of "+what)
	}
	return err
}

func failedList[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(*new(T), err) }
}

// list reads rows one at a time, and holds a connection meanwhile.
func list[R, T any](
	ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[R], object func(R) T, query string, arguments ...any,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		rows, _ := pool.Query(ctx, query, arguments...) // Err returns its error
		defer rows.Close()
		var err error
		for err == nil && rows.Next() {
			var row R
			if row, err = scan(rows); err == nil && !yield(object(row), nil) {
				return
			}
		}
		if err = errors.Join(err, rows.Err()); err != nil {
			yield(*new(T), fmt.Errorf("list: %w", postgres.Translate(err)))
		}
	}
}

func insertOrderTx(tx *idempotency.Tx, run *idempotency.Run, o orderRow) {
	tx.Queue(`
INSERT INTO orders (
    id,
    account_id,
    idempotency_key,
    email,
    currency,
    amount,
    items,
    metadata,
    payment_method,
    off_session,
    status,
    reference,
    created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now())`,
		o.ID, run.AccountID, string(run.Key), o.Email, o.Currency, o.Amount, o.Items, o.Metadata,
		o.PaymentMethod, o.OffSession, o.Status, o.Reference)
}

// updateOrderTx changes an order with constant SQL, whose values start at $3.
func updateOrderTx(tx *idempotency.Tx, accountID, id uuid.UUID, set string, values ...any) {
	tx.Queue("UPDATE orders SET "+set+" WHERE account_id = $1 AND id = $2", append([]any{accountID, id}, values...)...)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
