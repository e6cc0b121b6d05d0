package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
)

const (
	missing    = "missing"    // status of what does not exist
	unreadable = "unreadable" // status of an intent that exists, and of which nothing else is known

	// declined is the status of an intent whose card was declined. The holder of its client secret can still pay it
	// with another card.
	declined = "declined"
)

// intent is an intent at the provider. The ids are those in its metadata, and zero if another program created it.
type intent struct {
	IDs
	Money
	id      string
	status  string
	created time.Time
}

func stateOf(i payments.Intent) intent {
	p := intent{id: i.ID, status: string(i.Status), Money: Money{i.Amount, i.Currency}, created: i.Created}
	if m := payments.ParseMetadata(i.Metadata); !slices.Contains([]uuid.UUID{m.AccountID, m.OrderID, m.KeyID}, uuid.Nil) {
		p.IDs = IDs{AccountID: m.AccountID, OrderID: m.OrderID, KeyID: m.KeyID}
	}
	switch {
	case i.Status == payments.StatusSucceeded:
		p.Amount = i.AmountReceived
	case i.Status == payments.StatusRequiresPaymentMethod && i.LastError != nil:
		p.status = declined
	}
	return p
}

// orderState is an order, and the state of its key unless the row of the key is gone.
type orderState struct {
	IDs
	Money
	Status       string
	IntentID     string      // as recorded, "" if none
	Active       []time.Time // when the order was created, and its key used
	ResponseCode int
	Unfinished   bool // false also without a key
	KeyLost      bool // an operator has expired the key of the lost order
}

// load returns the orders of these ids. It reads an order and its key in one snapshot, because a transaction that
// commits between two statements would look like a discrepancy.
func (r *run) load(ctx context.Context, ids []IDs) ([]orderState, error) {
	var accountIDs, orderIDs, keyIDs []uuid.UUID
	for _, id := range ids {
		accountIDs, orderIDs, keyIDs = append(accountIDs, id.AccountID), append(orderIDs, id.OrderID), append(keyIDs, id.KeyID)
	}
	return postgres.Collect(ctx, r.Orders.Pool, "read orders", pgx.RowToStructByPos[orderState], `
SELECT named.account_id,
       named.order_id,
       named.key_id,
       coalesce(o.amount, 0),
       coalesce(o.currency, ''),
       coalesce(o.status, 'missing'),
       coalesce(o.payment_intent_id, ''),
       array_remove(ARRAY[o.created_at, key.finished_at, key.locked_at, key.updated_at], NULL),
       coalesce(key.response_code, 0),
       key.id IS NOT NULL AND key.finished_at IS NULL,
       coalesce(key.lost, false)
  FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS named (account_id, order_id, key_id, n)
  LEFT JOIN orders AS o
    ON o.account_id = named.account_id
   AND o.id = named.order_id
  LEFT JOIN idempotency_keys AS key
    ON key.account_id = named.account_id
   AND key.id = named.key_id
   AND (key.lost OR o.id IS NOT NULL)
 ORDER BY n`, accountIDs, orderIDs, keyIDs)
}

func (r *run) compareIntents(ctx context.Context, page []payments.Intent) error {
	var ids []IDs
	for _, listed := range page {
		ids = append(ids, stateOf(listed).IDs)
	}
	found, err := r.load(ctx, ids)
	for i, o := range found {
		if r.foreign(o.IDs) {
			r.report.ForeignIntents++
			continue
		}
		p := stateOf(page[i])
		if o.IntentID == p.id {
			r.listedOrders[o.OrderID] = struct{}{}
		}
		if !r.undecided(o, p) {
			r.report.Intents++
			r.add(r.compare(o, p))
		}
	}
	return err
}

// foreign reports whether another program has created an intent with these ids, or probably another database.
func (r *run) foreign(ids IDs) bool {
	return ids.AccountID == uuid.Nil || !r.LostRows && !r.hasAccount(ids.AccountID)
}

// checkProviderAccount is for an empty list, which may be that of another of the provider's accounts.
func (r *run) checkProviderAccount(ctx context.Context) error {
	if r.report.Intents > 0 {
		return nil
	}
	return r.Orders.CheckProviderAccount(ctx, uuid.Nil)
}

// compareOrders compares the orders whose intents were not listed, and those that are open although no run is
// responsible for them, because the row of their key is gone.
func (r *run) compareOrders(ctx context.Context) error {
	newest := r.report.Until
	if r.LostRows {
		newest = newest.Add(payments.ClockSkew) // the lost primary's clock may have been ahead
	}
	type row struct {
		orderID
		Key      idempotency.Key
		IntentID string
		Open     bool
	}
	const slice = 24 * time.Hour // so that no statement takes long
	for from := r.report.Since; from.Before(newest); from = from.Add(slice) {
		some, err := postgres.Collect(ctx, r.Orders.Pool, "list orders", pgx.RowToStructByPos[row], `
SELECT account_id,
       id,
       idempotency_key,
       coalesce(payment_intent_id, ''),
       status IN ('pending', 'requires_action')
  FROM orders AS o
 WHERE account_id = ANY($1)
   AND created_at >= $2
   AND created_at < least($3::timestamptz, $4)
   AND NOT EXISTS (
           SELECT
             FROM idempotency_keys AS k
            WHERE k.account_id = o.account_id
              AND k.idempotency_key = o.idempotency_key
              AND k.finished_at IS NULL
       )`, r.accounts, from, from.Add(slice), newest)
		if err != nil {
			return err
		}
		for _, o := range some {
			d := Discrepancy{IDs: IDs{o.AccountID, o.ID, idempotency.KeyID(o.AccountID, o.Key)}, IntentID: o.IntentID}
			if _, listed := r.listedOrders[o.ID]; listed && !o.Open {
				continue
			}
			if o.Open {
				d.Kind = OrphanedRecord
			}
			now, decided, err := r.compareAgain(ctx, d)
			if err != nil {
				return err
			}
			if decided {
				r.add(now)
			}
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compareAgain compares an order with an intent that was not listed, which it reads before the order. An orphaned
// record is one whatever its intent, and a refund is unrecorded until an order records its payment. It is undecided if
// the intent cannot be read, or a run may be active.
func (r *run) compareAgain(ctx context.Context, d Discrepancy) (now Discrepancy, decided bool, err error) {
	p := intent{id: d.IntentID, status: missing}
	if d.IntentID != "" && d.Kind != OrphanedRecord && d.Kind != UnrecordedRefund {
		if p, err = r.read(ctx, d.IntentID); err != nil {
			return now, false, err
		}
	}
	found, err := r.load(ctx, []IDs{d.IDs})
	switch {
	case err != nil, r.undecided(found[0], p):
		return now, false, err
	case d.Kind != UnrecordedRefund:
		return r.compare(found[0], p), true, nil
	case found[0].IntentID != d.IntentID:
		return d, true, nil
	default:
		return now, true, nil
	}
}

func (r *run) undecided(o orderState, p intent) bool {
	return p.status == unreadable || r.recent(append(o.Active, p.created)...)
}

// compare returns a discrepancy without a kind if there is none.
func (r *run) compare(o orderState, p intent) Discrepancy {
	facts := []string{"intent " + p.status, "order " + o.Status}
	if p.OrderID != o.OrderID && p.OrderID != uuid.Nil {
		facts[0] += " of another order"
	}
	if p.OrderID != o.OrderID {
		p.status = missing
	}
	kind := classify(o, p)
	if !r.hasAccount(o.AccountID) {
		facts = append(facts, unknownAccount)
	}
	if o.ResponseCode != 0 {
		facts = append(facts, fmt.Sprintf("response %d", o.ResponseCode))
	}
	if o.KeyLost {
		facts = append(facts, keyExpired)
	}
	if kind == OrphanedRecord {
		facts = facts[1:] // no intent was read
	}
	return Discrepancy{
		Kind: kind, IDs: o.IDs, IntentID: p.id, Local: o.Money, Provider: p.Money, Created: p.created, Detail: strings.Join(facts, ", "),
	}
}

func classify(o orderState, p intent) Kind {
	recorded := o.IntentID == p.id
	awaited := o.Unfinished && (recorded || o.IntentID == "" && p.Money == o.Money) // the key's next run uses this intent
	paid := orders.Status(o.Status).Paid()
	failed := o.ResponseCode != 0 && o.ResponseCode != http.StatusCreated
	charged := p.status == string(payments.StatusSucceeded)
	switch {
	case paid && recorded && !charged:
		return MissingAtProvider
	case p.status == missing && recorded && !awaited && o.Status != string(orders.StatusPaymentFailed):
		return OrphanedRecord
	case p.status == missing:
		return ""
	case recorded && p.Money != o.Money:
		return AmountMismatch
	case awaited, charged && recorded && paid && !failed:
		return ""
	case charged && paid && !recorded:
		return DuplicateCharge
	case charged:
		return UnrecordedCharge
	}
	switch p.status {
	case string(payments.StatusCanceled):
		return ""
	case string(payments.StatusRequiresConfirmation), string(payments.StatusRequiresPaymentMethod):
		return OrphanedIntent
	case declined: // if it is not recorded, the customer may have its client secret (R23, cancel first)
		if recorded {
			return ""
		}
		return OrphanedIntent
	case string(payments.StatusRequiresAction):
		if o.Status == missing {
			return OrphanedIntent
		}
	}
	return OpenIntent
}

func (r *run) read(ctx context.Context, id string) (intent, error) {
	read, err := r.Orders.Payments.Get(ctx, id)
	if failed, ok := errors.AsType[*payments.Error](err); ok && failed.Code == "resource_missing" {
		return intent{id: id, status: missing}, nil
	}
	if slices.Contains(payments.UnreadableIDs(err), id) {
		r.reportUnreadable(err)
		return intent{id: id, status: unreadable}, nil
	}
	if err != nil {
		return intent{}, fmt.Errorf("get %s: %w", id, err)
	}
	return stateOf(read), nil
}
