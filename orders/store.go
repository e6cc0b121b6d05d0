package orders

import (
	"context"
	"encoding/json"
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
	Order
	paymentMethod  string
	offSession     bool
	createAttempt  int // number of the provider key (R12)
	confirmAttempt int
}

const orderColumns = `
       id,
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
       confirm_attempt`

func scanOrder(r pgx.CollectableRow) (orderRow, error) {
	var o orderRow
	var items, metadata []byte
	var paidAt *time.Time
	var failureCode, declineCode *string
	err := r.Scan(&o.ID, &o.Status, &o.Amount, &o.AmountRefunded, &o.Currency, &o.Email, &items, &o.PaymentIntentID,
		&metadata, &o.CreatedAt.Time, &paidAt, &failureCode, &declineCode, &o.paymentMethod, &o.offSession, &o.createAttempt, &o.confirmAttempt)
	if err != nil {
		return orderRow{}, err
	}
	o.CreatedAt.Time = o.CreatedAt.UTC()
	if paidAt != nil {
		o.PaidAt = &Timestamp{paidAt.UTC()}
	}
	if failureCode != nil {
		o.Failure = &Failure{Code: *failureCode, DeclineCode: declineCode}
	}
	return o, errors.Join(json.Unmarshal(items, &o.Items), json.Unmarshal(metadata, &o.Metadata))
}

func findOrder(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (orderRow, error) {
	rows, err := pool.Query(ctx, `
SELECT`+orderColumns+`
  FROM orders
 WHERE account_id = $1
   AND id = $2`, accountID, id)
	if err != nil {
		return orderRow{}, fmt.Errorf("read order: %w", postgres.Translate(err))
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanOrder)
	if errors.Is(err, pgx.ErrNoRows) {
		return orderRow{}, ErrNotFound
	}
	if err != nil {
		return orderRow{}, fmt.Errorf("read order: %w", postgres.Translate(err))
	}
	return o, nil
}

// listOrders reads a page of the account's orders, newest first. after is the cursor, nil
// for the first page.
func listOrders(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, limit int, after *orderRow) iter.Seq2[Order, error] {
	query, arguments := `
SELECT`+orderColumns+`
  FROM orders
 WHERE account_id = $1
 ORDER BY created_at DESC, id DESC
 LIMIT $2`, []any{accountID, limit}
	if after != nil {
		query, arguments = `
SELECT`+orderColumns+`
  FROM orders
 WHERE account_id = $1
   AND (created_at, id) < ($3, $4)
 ORDER BY created_at DESC, id DESC
 LIMIT $2`, append(arguments, after.CreatedAt.Time, after.ID)
	}
	return each(ctx, pool, query, arguments, func(r pgx.CollectableRow) (Order, error) {
		o, err := scanOrder(r)
		return o.Order, err
	})
}

// each reads the rows of a query one at a time. It holds a connection until then.
func each[T any](ctx context.Context, pool *pgxpool.Pool, query string, arguments []any, scan pgx.RowToFunc[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		rows, err := pool.Query(ctx, query, arguments...)
		if err == nil {
			defer rows.Close()
			for err == nil && rows.Next() {
				var object T
				if object, err = scan(rows); err == nil && !yield(object, nil) {
					return
				}
			}
			err = errors.Join(err, rows.Err())
		}
		if err != nil {
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
		o.paymentMethod, o.offSession, o.Status)
}

func setIntentTx(tx *idempotency.Tx, accountID uuid.UUID, o orderRow) {
	tx.Queue(`
UPDATE orders
   SET payment_intent_id = $3
 WHERE account_id = $1
   AND id = $2`, accountID, o.ID, o.PaymentIntentID)
}

func setAttemptsTx(tx *idempotency.Tx, accountID uuid.UUID, o orderRow) {
	tx.Queue(`
UPDATE orders
   SET create_attempt  = $3,
       confirm_attempt = $4
 WHERE account_id = $1
   AND id = $2`, accountID, o.ID, o.createAttempt, o.confirmAttempt)
}

func setRequiresActionTx(tx *idempotency.Tx, accountID, id uuid.UUID) {
	tx.Queue(`
UPDATE orders
   SET status = 'requires_action'
 WHERE account_id = $1
   AND id = $2`, accountID, id)
}

func setPaidTx(tx *idempotency.Tx, accountID, id uuid.UUID, at time.Time) {
	tx.Queue(`
UPDATE orders
   SET status  = 'paid',
       paid_at = $3
 WHERE account_id = $1
   AND id = $2`, accountID, id, at)
}

func setPaymentFailedTx(tx *idempotency.Tx, accountID, id uuid.UUID, why failure) {
	tx.Queue(`
UPDATE orders
   SET status       = 'payment_failed',
       failure_code = $3,
       decline_code = nullif($4, '')
 WHERE account_id = $1
   AND id = $2`, accountID, id, why.code, why.declineCode)
}

// auditTx writes an audit record. The resource type is the first part of the action, as in
// order.paid. The ids are UUIDv7, whose ascending values keep the index small.
func auditTx(tx *idempotency.Tx, accountID, id uuid.UUID, action string, data map[string]any, clientIP netip.Addr) {
	resource, _, _ := strings.Cut(action, ".")
	tx.Queue(`
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data,
    request_ip
) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		uuid.Must(uuid.NewV7()), accountID, action, resource, id.String(), data, addrOrNil(clientIP))
}

func addrOrNil(addr netip.Addr) *netip.Addr {
	if !addr.IsValid() {
		return nil
	}
	return &addr
}
