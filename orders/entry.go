package orders

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// The statements of the comparison are in this file. They only read, the
// engine's table too.

// reference names an order in the books, or one that should be there. Order and
// key derive from the same (R5), so either finds the other.
type reference struct {
	accountID uuid.UUID
	orderID   uuid.UUID
	keyID     uuid.UUID
}

// referenceOf reads the reference that we give every intent we create. An
// intent without is somebody else's.
func referenceOf(i payments.Intent) (reference, bool) {
	accountID, noAccount := uuid.Parse(i.Metadata["account_id"])
	order, noOrder := uuid.Parse(i.Metadata["order_id"])
	keyID, noKey := uuid.Parse(i.Metadata["idempotency_key_id"])
	return reference{accountID, order, keyID}, noAccount == nil && noOrder == nil && noKey == nil
}

// entry is what the books say about a reference.
type entry struct {
	reference
	accountKnown bool

	status   Status // "" when there is no order
	amount   int64
	currency string
	intentID string // "" when the order names none

	unfinished bool // the key is there, and so its run will go on
	answered   int  // the status of the stored response, 0 without

	touchedAt time.Time // when a run, its end included, last had to do with it
}

func (e entry) booked() bool { return e.status != "" }

// paid holds for what was refunded later, too.
func (e entry) paid() bool {
	return e.status == StatusPaid || e.status == StatusPartiallyRefunded || e.status == StatusRefunded
}

// lookUp reads an entry for each of the references, in their order.
func (s *Service) lookUp(ctx context.Context, references []reference) ([]entry, error) {
	var accountIDs, orderIDs, keyIDs []uuid.UUID
	for _, r := range references {
		accountIDs, orderIDs, keyIDs = append(accountIDs, r.accountID), append(orderIDs, r.orderID), append(keyIDs, r.keyID)
	}
	rows, err := s.pool.Query(ctx, `
SELECT r.account_id,
       r.order_id,
       r.key_id,
       a.id IS NOT NULL,
       coalesce(o.status, ''),
       coalesce(o.amount, 0),
       coalesce(o.currency, ''),
       coalesce(o.payment_intent_id, ''),
       coalesce(k.recovery_point <> 'finished', false),
       coalesce(k.response_code, 0),
       coalesce(greatest(o.created_at, o.paid_at, k.created_at, k.last_run_at, k.locked_at, k.finished_at), 'epoch')
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS r (account_id, order_id, key_id, position)
  LEFT JOIN accounts AS a
    ON a.id = r.account_id
  LEFT JOIN orders AS o
    ON o.account_id = r.account_id
   AND o.id = r.order_id
  LEFT JOIN idempotency_keys AS k
    ON k.account_id = r.account_id
   AND k.id = r.key_id
 ORDER BY r.position`, accountIDs, orderIDs, keyIDs)
	if err != nil {
		return nil, fmt.Errorf("look up orders: %w", postgres.Translate(err))
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (entry, error) {
		var e entry
		err := row.Scan(&e.accountID, &e.orderID, &e.keyID, &e.accountKnown, &e.status, &e.amount, &e.currency, &e.intentID,
			&e.unfinished, &e.answered, &e.touchedAt)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("look up orders: %w", postgres.Translate(err))
	}
	return entries, nil
}

// activeAccounts lists the accounts with orders made in a span of time, its
// ends included.
func (s *Service) activeAccounts(ctx context.Context, since, until time.Time) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, `
SELECT a.id
  FROM accounts AS a
 WHERE EXISTS (
           SELECT FROM orders AS o
            WHERE o.account_id = a.id
              AND o.created_at >= $1
              AND o.created_at <= $2
       )
 ORDER BY a.id`, since, until)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", postgres.Translate(err))
	}
	accounts, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", postgres.Translate(err))
	}
	return accounts, nil
}

// bookPage is how many orders are read at once.
const bookPage = 500

// place is one in an account's orders, or in its refunds.
type place struct {
	createdAt time.Time
	id        uuid.UUID
}

// referencesBefore lists up to bookPage of the account's orders, newest first:
// those behind the given place, back to since. It returns the last one's place.
func (s *Service) referencesBefore(ctx context.Context, accountID uuid.UUID, since time.Time, before place) ([]reference, place, error) {
	rows, err := s.pool.Query(ctx, `
SELECT id,
       idempotency_key,
       created_at
  FROM orders
 WHERE account_id = $1
   AND created_at >= $2
   AND (created_at, id) < ($3, $4)
 ORDER BY created_at DESC, id DESC
 LIMIT $5`, accountID, since, before.createdAt, before.id, bookPage)
	if err != nil {
		return nil, place{}, fmt.Errorf("list orders: %w", postgres.Translate(err))
	}
	references, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (reference, error) {
		var key idempotency.Key
		err := row.Scan(&before.id, &key, &before.createdAt)
		return reference{accountID, before.id, idempotency.KeyID(accountID, key)}, err
	})
	if err != nil {
		return nil, place{}, fmt.Errorf("list orders: %w", postgres.Translate(err))
	}
	return references, before, nil
}
