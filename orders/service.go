package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Service creates and reads orders. It is safe for concurrent use. One that only reads needs only Pool.
type Service struct {
	Payments     *payments.Client
	Logger       *slog.Logger
	Pool         *pgxpool.Pool
	Engine       *idempotency.Engine
	ChargeWindow time.Duration // an order of this age is not charged any more (R24, charge window)
	Events       events.Stager
}

// The operations and their path.
const (
	CreateOperation = "create_order"
	CancelOperation = "cancel_order"
	Path            = "/v1/orders"
)

// Operations returns the operations of orders, for the engine.
func (s *Service) Operations() []idempotency.Operation {
	return []idempotency.Operation{createOrder{s}, cancelOrder{s}}
}

type orderRow struct {
	OrderRequest
	CreateKeyNumber  int `db:"create_key_number"`  // in the provider key of a create, see repeatWithNextKey
	ConfirmKeyNumber int `db:"confirm_key_number"` // in those of a confirm and of a cancel

	IdempotencyKey  idempotency.Key
	CancelRequested bool // see closeReason
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
       CASE
           WHEN failure_code IS NOT NULL THEN jsonb_build_object('code', failure_code, 'decline_code', decline_code)
       END AS failure,
       payment_method,
       off_session,
       create_key_number,
       confirm_key_number,
       reference,
       coalesce(disputes, '[]') AS disputes,
       idempotency_key,
       cancel_requested_at IS NOT NULL AS cancel_requested
  FROM orders`

// Get returns the account's order, or [httpjson.ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, id uuid.UUID) (Order, error) {
	o, err := s.find(ctx, accountID, id)
	return o.Order, err
}

func (s *Service) find(ctx context.Context, accountID, id uuid.UUID) (orderRow, error) {
	return httpjson.QueryRow(ctx, s.Pool, pgx.RowToStructByName[orderRow], selectOrder+`
 WHERE account_id = $1
   AND id = $2`, accountID, id)
}

// findSQL finds the orders with a name, the newest first, in each account by an index. Only an operator needs the email
// address, so it is searched in the table, a second for 2 million orders, instead of an index that every order would
// have to write.
const findSQL = `
WITH named AS (
    SELECT account_id, idempotency_key, id, status, created_at FROM orders WHERE account_id = ANY($1) AND id = $2
     UNION SELECT account_id, idempotency_key, id, status, created_at FROM orders WHERE account_id = ANY($1) AND reference = $3
     UNION SELECT account_id, idempotency_key, id, status, created_at FROM orders WHERE account_id = ANY($1) AND payment_intent_id = $3
     UNION SELECT account_id, idempotency_key, id, status, created_at FROM orders WHERE account_id = ANY($1)
       AND disputes @> jsonb_build_array(jsonb_build_object('id', $3::text))
     UNION SELECT account_id, idempotency_key, id, status, created_at FROM orders WHERE account_id = ANY($1)
       AND $3::text LIKE '%@%' AND lower(email COLLATE "C") = lower($3::text COLLATE "C")
)
SELECT account_id, idempotency_key, 'order ' || id || ', ' || status FROM named ORDER BY created_at DESC`

// Find implements [idempotency.Finder] with an id, a reference, an id of the provider or an email address.
func (op createOrder) Find(ctx context.Context, accountIDs []uuid.UUID, name string) ([]idempotency.Found, error) {
	id, _ := uuid.Parse(name) // otherwise uuid.Nil, which no order has
	return postgres.Collect(ctx, op.service.Pool, "find orders", pgx.RowToStructByPos[idempotency.Found], findSQL, accountIDs, id, name)
}

// Receipt implements [receipts.FindOrder].
func (s *Service) Receipt(ctx context.Context, accountID, id uuid.UUID) (receipts.Order, error) {
	o, err := httpjson.QueryRow(ctx, s.Pool, pgx.RowToStructByNameLax[receipts.Order], `
SELECT id,
       email,
       currency,
       amount,
       items,
       paid_at
  FROM orders
 WHERE account_id = $1
   AND id = $2
   AND paid_at IS NOT NULL
   AND email IS NOT NULL`, accountID, id)
	if errors.Is(err, httpjson.ErrNotFound) {
		err = fmt.Errorf("%w: no such paid order, or its address is erased", jobs.ErrPermanent)
	}
	return o, err
}

// LockTx returns the status, the amount and the currency of the account's order, or [httpjson.ErrNotFound]. The
// transaction locks the order, so that they stay as they are.
func LockTx(ctx context.Context, tx *idempotency.Tx, accountID, id uuid.UUID) (o Order, err error) {
	err = tx.QueryRow(ctx, `
SELECT status,
       amount,
       currency
  FROM orders
 WHERE account_id = $1
   AND id = $2
   FOR NO KEY UPDATE`, []any{accountID, id}, &o.Status, &o.Amount, &o.Currency)
	if errors.Is(err, pgx.ErrNoRows) {
		err = httpjson.ErrNotFound
	}
	return o, err
}

// ofKey returns the order that a key has created. Its absence is an error of ours, but the API would answer
// ErrNotFound with 404.
func (s *Service) ofKey(ctx context.Context, accountID uuid.UUID, key idempotency.Key) (orderRow, error) {
	o, err := s.find(ctx, accountID, orderID(accountID, key))
	if errors.Is(err, httpjson.ErrNotFound) {
		err = fmt.Errorf("the order of key %s is missing", idempotency.KeyID(accountID, key))
	}
	return o, err
}

func (s *Service) findByReference(ctx context.Context, accountID uuid.UUID, reference string) (orderRow, error) {
	return httpjson.QueryRow(ctx, s.Pool, pgx.RowToStructByName[orderRow], selectOrder+`
 WHERE account_id = $1
   AND reference = $2
   AND failure_code IS NULL`, accountID, reference)
}

// CheckProviderAccount returns an error if the provider does not know the recorded intent of the latest
// order of an account, or of all accounts if accountID is uuid.Nil. Our API key then belongs to another of
// the provider's accounts or modes, whose refusals and empty lists prove nothing. For all
// accounts, it reads the latest order of each, because the index begins with the account.
func (s *Service) CheckProviderAccount(ctx context.Context, accountID uuid.UUID) error {
	var id string
	err := s.Pool.QueryRow(ctx, `
SELECT o.payment_intent_id
  FROM accounts
 CROSS JOIN LATERAL (
           SELECT payment_intent_id,
                  created_at
             FROM orders
            WHERE account_id = accounts.id
              AND payment_intent_id IS NOT NULL
            ORDER BY created_at DESC, id DESC
            LIMIT 1
       ) AS o
 WHERE $1::uuid IN (accounts.id, '00000000-0000-0000-0000-000000000000')
 ORDER BY o.created_at DESC
 LIMIT 1`, accountID).Scan(&id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read the latest intent: %w", postgres.Translate(err))
	}
	_, err = s.Payments.Get(ctx, id)
	if slices.Contains(payments.UnreadableIDs(err), id) {
		return nil // it is there
	}
	if failed, ok := errors.AsType[*payments.Error](err); ok && failed.Code == "resource_missing" {
		err = fmt.Errorf("the provider does not know %s, so the API key is of another account or mode: %w", id, err)
	}
	return err
}

// ChangeJob is the kind of the jobs that read an order's refunds and disputes from the provider.
const ChangeJob = "provider_change"

// StageChange queues the job of an order, whose refunds and disputes are then read again.
func StageChange(tx postgres.Queuer, accountID, orderID uuid.UUID) {
	jobs.RestageTx(tx, accountID, orderID, ChangeJob, map[string]uuid.UUID{"order_id": orderID})
}

// List returns the account's orders, or those with the reference, the newest first.
func (s *Service) List(ctx context.Context, accountID uuid.UUID, page httpjson.Page) ([]Order, error) {
	reference, filtered := page.Filters["reference"]
	if filtered && !validReference(reference) {
		return nil, httpjson.Invalid("/reference", httpjson.CodeInvalidFormat, "must be 1 to 64 printable ASCII characters")
	}
	after, err := page.Cursor(func(id uuid.UUID) (httpjson.Timestamp, error) {
		o, err := s.Get(ctx, accountID, id)
		return o.CreatedAt, err
	})
	if err != nil {
		return nil, err
	}
	where, arguments := "", []any{accountID, after.CreatedAt, after.ID, page.Limit}
	if filtered {
		where, arguments = " AND reference = $5", append(arguments, reference)
	}
	scan := func(row pgx.CollectableRow) (Order, error) {
		o, err := pgx.RowToStructByName[orderRow](row)
		return o.Order, err
	}
	return postgres.Collect(ctx, s.Pool, "list orders", scan, selectOrder+`
 WHERE account_id = $1
   AND (created_at, id) < ($2, $3)`+where+`
 ORDER BY created_at DESC, id DESC
 LIMIT $4`, arguments...)
}
