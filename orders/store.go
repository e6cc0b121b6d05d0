package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

// Every statement that an order runs on orders and audit_records is in this file;
// those of refunds are in refundstore.go.

// row is an order with what only the charging needs.
type row struct {
	Order
	paymentMethod  string
	createAttempt  int // number of the provider key (R12)
	confirmAttempt int
}

const columns = `
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
       payment_method,
       create_attempt,
       confirm_attempt`

func scanRow(r pgx.CollectableRow) (row, error) {
	var o row
	var items, metadata []byte
	err := r.Scan(&o.ID, &o.Status, &o.Amount, &o.AmountRefunded, &o.Currency, &o.Email, &items, &o.PaymentIntentID,
		&metadata, &o.CreatedAt, &o.PaidAt, &o.paymentMethod, &o.createAttempt, &o.confirmAttempt)
	if err != nil {
		return row{}, err
	}
	o.CreatedAt = o.CreatedAt.UTC()
	if o.PaidAt != nil {
		*o.PaidAt = o.PaidAt.UTC()
	}
	return o, errors.Join(json.Unmarshal(items, &o.Items), json.Unmarshal(metadata, &o.Metadata))
}

// find reads one order of the account.
func find(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (row, error) {
	rows, err := pool.Query(ctx, `
SELECT`+columns+`
  FROM orders
 WHERE account_id = $1
   AND id = $2`, accountID, id)
	if err != nil {
		return row{}, fmt.Errorf("read order: %w", postgres.Translate(err))
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return row{}, ErrNotFound
	}
	if err != nil {
		return row{}, fmt.Errorf("read order: %w", postgres.Translate(err))
	}
	return o, nil
}

// list reads up to limit orders of the account, newest first, behind the order
// after when that is not nil.
func list(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, limit int, after *row) ([]row, error) {
	query, arguments := `
SELECT`+columns+`
  FROM orders
 WHERE account_id = $1
 ORDER BY created_at DESC, id DESC
 LIMIT $2`, []any{accountID, limit}
	if after != nil {
		query, arguments = `
SELECT`+columns+`
  FROM orders
 WHERE account_id = $1
   AND (created_at, id) < ($3, $4)
 ORDER BY created_at DESC, id DESC
 LIMIT $2`, append(arguments, after.CreatedAt, after.ID)
	}
	rows, err := pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", postgres.Translate(err))
	}
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return nil, fmt.Errorf("list orders: %w", postgres.Translate(err))
	}
	return found, nil
}

// insertTx fails when the key made something before and was reaped since (R17):
// an order, which the constraints see, or a refund, where the id is refused for
// being NULL. See keyMade.
func insertTx(tx *idempotency.Tx, run *idempotency.Run, o row) {
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
    status,
    created_at
) VALUES (
    CASE WHEN NOT EXISTS (SELECT FROM refunds WHERE account_id = $2 AND idempotency_key = $3) THEN $1::uuid END,
    $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
)`,
		o.ID, run.AccountID, string(run.Key), o.Email, o.Currency, o.Amount, o.Items, o.Metadata,
		o.paymentMethod, o.Status, o.CreatedAt)
}

func setIntentTx(tx *idempotency.Tx, accountID uuid.UUID, o row) {
	tx.Queue(`
UPDATE orders
   SET payment_intent_id = $3
 WHERE account_id = $1
   AND id = $2`, accountID, o.ID, o.PaymentIntentID)
}

func setAttemptsTx(tx *idempotency.Tx, accountID uuid.UUID, o row) {
	tx.Queue(`
UPDATE orders
   SET create_attempt  = $3,
       confirm_attempt = $4
 WHERE account_id = $1
   AND id = $2`, accountID, o.ID, o.createAttempt, o.confirmAttempt)
}

func setPaidTx(tx *idempotency.Tx, accountID, id uuid.UUID, at time.Time) {
	tx.Queue(`
UPDATE orders
   SET status  = 'paid',
       paid_at = $3
 WHERE account_id = $1
   AND id = $2`, accountID, id, at)
}

func setPaymentFailedTx(tx *idempotency.Tx, accountID, id uuid.UUID) {
	tx.Queue(`
UPDATE orders
   SET status = 'payment_failed'
 WHERE account_id = $1
   AND id = $2`, accountID, id)
}

// auditTx records what happened to an order, or another resource that the action
// names (order.paid, refund.created), in the transaction that made it happen. The
// ids are UUIDv7: nobody else needs to find them, and rows that come in order
// keep the index small.
func auditTx(tx *idempotency.Tx, accountID, id uuid.UUID, action string, data map[string]any, clientIP netip.Addr, at time.Time) error {
	recordID, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	resource, _, _ := strings.Cut(action, ".")
	tx.Queue(`
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data,
    request_ip,
    created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		recordID, accountID, action, resource, id.String(), data, known(clientIP), at)
	return nil
}

// known is the address, nil when no client asked.
func known(clientIP netip.Addr) *netip.Addr {
	if !clientIP.IsValid() {
		return nil
	}
	return &clientIP
}
