package orders

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// The statements of the comparison of refunds are in this file. They only read.

// refundReference names a refund in the books, or one that should be there.
type refundReference struct {
	accountID uuid.UUID
	refundID  uuid.UUID // uuid.Nil for one that somebody else made of our order's payment
	intentID  string    // of the refund at the provider, "" where it is not at hand
}

// refundReferenceOf reads the reference that we give every refund we make.
func refundReferenceOf(at payments.Refund) refundReference {
	accountID, noAccount := uuid.Parse(at.Metadata["account_id"])
	id, noRefund := uuid.Parse(at.Metadata["refund_id"])
	if noAccount != nil || noRefund != nil {
		return refundReference{intentID: at.IntentID}
	}
	return refundReference{accountID, id, at.IntentID}
}

// refundEntry is what the books say about a reference.
type refundEntry struct {
	refundReference
	orderID uuid.UUID // of the refund, else of the order whose payment it is; uuid.Nil without
	booked  bool      // the refund is in the books
	row     refundRow
	keyID   uuid.UUID

	unfinished bool      // its key is there, and so its run will go on
	touchedAt  time.Time // when a run, its end included, last had to do with it
}

// ours says that the refund was made by us, or of a payment of ours.
func (e refundEntry) ours() bool { return e.refundID != uuid.Nil || e.orderID != uuid.Nil }

// lookUpRefunds reads an entry for each of the references, in their order. Whose
// a payment is that somebody else refunded only its intent says, so this looks at
// every account (R20).
func (s *Service) lookUpRefunds(ctx context.Context, references []refundReference) ([]refundEntry, error) {
	var accountIDs, refundIDs []uuid.UUID
	var intentIDs []string
	for _, r := range references {
		accountIDs, refundIDs, intentIDs = append(accountIDs, r.accountID), append(refundIDs, r.refundID), append(intentIDs, r.intentID)
	}
	rows, err := s.pool.Query(ctx, `
SELECT x.account_id,
       x.refund_id,
       x.intent_id,
       coalesce(r.account_id, p.account_id, x.account_id),
       coalesce(r.order_id, p.id, '00000000-0000-0000-0000-000000000000'),
       coalesce(o.payment_intent_id, p.payment_intent_id, ''),
       r.id IS NOT NULL,
       coalesce(r.idempotency_key, ''),
       coalesce(r.amount, 0),
       coalesce(r.currency, ''),
       coalesce(r.status, ''),
       r.refund_id,
       coalesce(k.recovery_point <> 'finished', false),
       coalesce(greatest(r.created_at, k.created_at, k.last_run_at, k.locked_at, k.finished_at), 'epoch')
  FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY AS x (account_id, refund_id, intent_id, position)
  LEFT JOIN refunds AS r
    ON r.account_id = x.account_id
   AND r.id = x.refund_id
  LEFT JOIN orders AS o
    ON o.account_id = r.account_id
   AND o.id = r.order_id
  LEFT JOIN orders AS p
    ON p.payment_intent_id = x.intent_id
   AND r.id IS NULL
  LEFT JOIN idempotency_keys AS k
    ON k.account_id = r.account_id
   AND k.id = r.idempotency_key_id
 ORDER BY x.position`, accountIDs, refundIDs, intentIDs)
	if err != nil {
		return nil, fmt.Errorf("look up refunds: %w", postgres.Translate(err))
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (refundEntry, error) {
		var e refundEntry
		var key idempotency.Key
		var owner uuid.UUID
		err := row.Scan(&e.accountID, &e.refundID, &e.intentID, &owner, &e.orderID, &e.row.intentID, &e.booked, &key,
			&e.row.Amount, &e.row.Currency, &e.row.Status, &e.row.RefundID, &e.unfinished, &e.touchedAt)
		e.accountID = owner
		e.row.ID, e.row.OrderID = e.refundID, e.orderID
		if e.booked {
			e.keyID = idempotency.KeyID(e.accountID, key)
		}
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("look up refunds: %w", postgres.Translate(err))
	}
	return entries, nil
}

// refundsBefore lists up to bookPage of the account's refunds, newest first:
// those behind the given place, back to since. It returns the last one's place.
func (s *Service) refundsBefore(ctx context.Context, accountID uuid.UUID, since time.Time, before place) ([]refundReference, place, error) {
	rows, err := s.pool.Query(ctx, `
SELECT id,
       created_at
  FROM refunds
 WHERE account_id = $1
   AND created_at >= $2
   AND (created_at, id) < ($3, $4)
 ORDER BY created_at DESC, id DESC
 LIMIT $5`, accountID, since, before.createdAt, before.id, bookPage)
	if err != nil {
		return nil, place{}, fmt.Errorf("list refunds: %w", postgres.Translate(err))
	}
	references, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (refundReference, error) {
		err := row.Scan(&before.id, &before.createdAt)
		return refundReference{accountID: accountID, refundID: before.id}, err
	})
	if err != nil {
		return nil, place{}, fmt.Errorf("list refunds: %w", postgres.Translate(err))
	}
	return references, before, nil
}

// refundingAccounts lists the accounts with refunds made in a span of time, its
// ends included.
func (s *Service) refundingAccounts(ctx context.Context, since, until time.Time) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, `
SELECT a.id
  FROM accounts AS a
 WHERE EXISTS (
           SELECT FROM refunds AS r
            WHERE r.account_id = a.id
              AND r.created_at >= $1
              AND r.created_at <= $2
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

// holds says that a refund at the provider takes money from us, or will.
func holds(at payments.Refund) bool { return !RefundStatus(at.Status).Void() }

// judge compares a refund at the provider with what the books say about it. ""
// means that they agree, or that the next run of its key will see to it.
func (e refundEntry) judge(at payments.Refund) Kind {
	own := e.row.RefundID != nil && *e.row.RefundID == at.ID
	awaited := e.unfinished && e.row.RefundID == nil // the key's next run takes this one
	switch {
	case !e.booked, !own && !awaited:
		if holds(at) {
			return KindRefundNotBooked
		}
		return ""
	case at.Amount != e.row.Amount || at.Currency != e.row.Currency || at.IntentID != e.row.intentID:
		return KindRefundDiffers
	case awaited:
		return ""
	case string(at.Status) != string(e.row.Status):
		return KindRefundMoved
	default:
		return ""
	}
}

// difference is one about the refund, which may be missing.
func (e refundEntry) difference(kind Kind, detail string) Difference {
	d := Difference{Kind: kind, AccountID: e.accountID, OrderID: e.orderID, Refund: e.refundID, KeyID: e.keyID, IntentID: e.row.intentID, Detail: detail}
	if e.booked {
		d.Booked = &Money{e.row.Amount, e.row.Currency}
	}
	if e.row.RefundID != nil {
		d.RefundID = *e.row.RefundID
	}
	return d
}

// aboutRefund makes the difference one about a refund at the provider.
func (d Difference) aboutRefund(at payments.Refund) Difference {
	d.RefundID, d.IntentID, d.AtProvider = at.ID, at.IntentID, &Money{at.Amount, at.Currency}
	return d
}

// compared says how things stand, for people.
func (e refundEntry) compared(at payments.Refund) string {
	facts := []string{"refund " + at.ID + " " + string(at.Status)}
	switch {
	case e.booked:
		facts = append(facts, "booked "+string(e.row.Status))
	case e.orderID == uuid.Nil:
		facts = append(facts, "no such order")
	case e.refundID == uuid.Nil:
		facts = append(facts, "not made here")
	default:
		facts = append(facts, "not in the books")
	}
	if e.row.RefundID != nil && *e.row.RefundID != at.ID {
		facts = append(facts, "which name "+*e.row.RefundID)
	}
	if e.unfinished {
		facts = append(facts, "key unfinished")
	}
	return strings.Join(facts, ", ")
}
