package orders

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

// Found is an order or a refund, and the key that created it.
type Found struct {
	AccountID uuid.UUID
	Key       idempotency.Key
	What      string // such as order 6f2a…, payment_failed
}

// findByNameSQL makes each lookup by an index that begins with the account, so a search of all
// accounts takes seven lookups for each of them.
const findByNameSQL = `
WITH named AS (
    SELECT account_id, id FROM orders WHERE account_id = ANY($1) AND id = $2
    UNION SELECT account_id, id FROM orders WHERE account_id = ANY($1) AND reference = $3
    UNION SELECT account_id, id FROM orders WHERE account_id = ANY($1) AND payment_intent_id = $3
    UNION SELECT account_id, id FROM refunds WHERE account_id = ANY($1) AND id = $2
    UNION SELECT account_id, id FROM refunds WHERE account_id = ANY($1) AND provider_refund_id = $3
    UNION SELECT * FROM unnest($1::uuid[], $4::uuid[])
    UNION SELECT * FROM unnest($1::uuid[], $5::uuid[])
    LIMIT 20 + 2 * cardinality($1)
)
SELECT account_id, idempotency_key, 'order ' || id || ', ' || status
  FROM orders JOIN named USING (account_id, id)
UNION ALL
SELECT account_id, idempotency_key, 'refund ' || id || ', ' || status
  FROM refunds JOIN named USING (account_id, id)`

// Find returns the orders and refunds of the accounts with this id, reference, provider's id or
// idempotency key, at most 20.
func (s *Service) Find(ctx context.Context, accountIDs []uuid.UUID, name string) ([]Found, error) {
	id, _ := uuid.Parse(name) // otherwise uuid.Nil, which no order has
	ofOrders, ofRefunds := make([]uuid.UUID, len(accountIDs)), make([]uuid.UUID, len(accountIDs))
	for i, accountID := range accountIDs { // a reaped key is known by what it created (R5)
		ofOrders[i], ofRefunds[i] = orderID(accountID, idempotency.Key(name)), refundID(accountID, idempotency.Key(name))
	}
	return postgres.Collect(ctx, s.config.Pool, "find orders", pgx.RowToStructByPos[Found], findByNameSQL,
		accountIDs, id, name, ofOrders, ofRefunds)
}
