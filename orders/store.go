package orders

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

type orderRow struct {
	Params
	createAttempt  int // number of the provider key (R12)
	confirmAttempt int
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
       confirm_attempt
  FROM orders`

func scanOrder(r pgx.CollectableRow) (orderRow, error) {
	var o orderRow
	var failureCode, declineCode *string
	err := r.Scan(&o.ID, &o.Status, &o.Amount, &o.AmountRefunded, &o.Currency, &o.Email, &o.Items, &o.PaymentIntentID,
		&o.Metadata, &o.CreatedAt, &o.PaidAt, &failureCode, &declineCode, &o.PaymentMethod, &o.OffSession, &o.createAttempt, &o.confirmAttempt)
	if failureCode != nil {
		o.Failure = &Failure{Code: *failureCode, DeclineCode: declineCode}
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
		return row, ErrNotFound
	}
	if err != nil {
		return row, fmt.Errorf("read: %w", postgres.Translate(err))
	}
	return row, nil
}

// endOfTime is after all rows, so the first page of a list begins there.
func endOfTime() Timestamp {
	return Timestamp{time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)}
}

// List returns a page of the account's orders, newest first, which follows the order after.
// uuid.Nil is for the first page, [ErrNotFound] for an unknown order.
func (s *Service) List(ctx context.Context, accountID uuid.UUID, limit int, after uuid.UUID) iter.Seq2[Order, error] {
	last := Order{ID: uuid.Max, CreatedAt: endOfTime()}
	if after != uuid.Nil {
		var err error
		if last, err = s.Get(ctx, accountID, after); err != nil {
			return failedList[Order](err)
		}
	}
	return list(ctx, s.Pool, scanOrder, func(o orderRow) Order { return o.Order }, selectOrder+`
 WHERE account_id = $1
   AND (created_at, id) < ($2, $3)
 ORDER BY created_at DESC, id DESC
 LIMIT $4`, accountID, last.CreatedAt.Time, last.ID, limit)
}

func failedList[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(*new(T), err) }
}

// list reads the rows of a query one at a time. It holds a connection until then.
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
    created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now())`,
		o.ID, run.AccountID, string(run.Key), o.Email, o.Currency, o.Amount, o.Items, o.Metadata,
		o.PaymentMethod, o.OffSession, o.Status)
}

// updateOrderTx changes an order. set is constant SQL, whose values start at $3.
func updateOrderTx(tx *idempotency.Tx, accountID, id uuid.UUID, set string, values ...any) {
	tx.Queue("UPDATE orders SET "+set+" WHERE account_id = $1 AND id = $2", append([]any{accountID, id}, values...)...)
}

// optional returns nil, which is stored as NULL, for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

const insertAuditRecord = `
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data,
    request_ip
)`

const auditValues = " VALUES ($1, $2, $3, $4, $5, $6, $7)"

// auditTx writes an audit record. The resource type is the first part of the action, as in
// order.paid. The ids are UUIDv7, whose ascending values keep the index small. pgx stores
// the zero value of clientIP as NULL.
func auditTx(tx *idempotency.Tx, accountID, id uuid.UUID, action string, data map[string]any, clientIP netip.Addr) {
	resource, _, _ := strings.Cut(action, ".")
	tx.Queue(insertAuditRecord+auditValues,
		uuid.Must(uuid.NewV7()), accountID, action, resource, id.String(), data, clientIP)
}
