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
	unreadable = "unreadable" // status of an object that exists, and of which nothing else is known

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

// order is an order, and the state of its key unless the key was deleted.
type order struct {
	IDs
	Money
	Status    string
	IntentID  string // as recorded, "" if none
	CreatedAt *time.Time

	FinishedAt, LockedAt, LastRunAt *time.Time
	ResponseCode                    int
	Unfinished                      bool // false also without a key
	KeyLost                         bool // an operator has expired the key of the lost order
}

// load returns the orders of these ids. It reads an order and its key in one snapshot, because a transaction that
// commits between two statements would look like a discrepancy.
func (r *run) load(ctx context.Context, ids []IDs) ([]order, error) {
	var accountIDs, orderIDs, keyIDs []uuid.UUID
	for _, id := range ids {
		accountIDs, orderIDs, keyIDs = append(accountIDs, id.AccountID), append(orderIDs, id.OrderID), append(keyIDs, id.KeyID)
	}
	return postgres.Collect(ctx, r.Orders.Pool, "read orders", pgx.RowToStructByPos[order], `
SELECT named.account_id,
       named.order_id,
       named.key_id,
       coalesce(o.amount, 0),
       coalesce(o.currency, ''),
       coalesce(o.status, 'missing'),
       coalesce(o.payment_intent_id, ''),
       o.created_at,
       key.finished_at,
       key.locked_at,
       key.last_run_at,
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
		p := stateOf(page[i])
		if o.AccountID == uuid.Nil {
			r.report.ForeignIntents++
			continue
		}
		if !r.hasAccount(o.AccountID) {
			r.report.UnknownIntents++
			if !r.LostRows { // probably of another database
				continue
			}
		}
		if r.report.Intents++; o.IntentID == p.id {
			r.listedOrders[o.OrderID] = struct{}{}
		}
		r.compare(o, p)
	}
	return err
}

// checkProviderAccount is for an empty list, which may be that of another of the provider's accounts.
func (r *run) checkProviderAccount(ctx context.Context) error {
	if r.report.Intents > 0 {
		return nil
	}
	return r.Orders.CheckProviderAccount(ctx, uuid.Nil)
}

// compareOrders compares the orders whose intents were not listed, and those in progress, whose key may be lost.
func (r *run) compareOrders(ctx context.Context) error {
	newest := r.report.Until
	if r.LostRows {
		newest = newest.Add(payments.ClockSkew) // the lost primary's clock may have been ahead
	}
	type row struct {
		ID        uuid.UUID
		CreatedAt time.Time
		Key       idempotency.Key
		Open      bool
	}
	const pageSize = 2_000
	for _, accountID := range r.accounts {
		last := row{ID: uuid.Max, CreatedAt: newest}
		for full := true; full; {
			page, err := postgres.Collect(ctx, r.Orders.Pool, "list orders", pgx.RowToStructByPos[row], `
SELECT id,
       created_at,
       idempotency_key,
       status IN ('pending', 'requires_action')
  FROM orders
 WHERE account_id = $1
   AND created_at >= $2
   AND (created_at, id) < ($3, $4)
 ORDER BY created_at DESC, id DESC
 LIMIT $5`, accountID, r.report.Since, last.CreatedAt, last.ID, pageSize)
			var unlisted []IDs
			for _, last = range page {
				if _, listed := r.listedOrders[last.ID]; !listed || last.Open {
					unlisted = append(unlisted, IDs{accountID, last.ID, idempotency.KeyID(accountID, last.Key)})
				}
			}
			if err == nil && unlisted != nil {
				err = r.compareUnlisted(ctx, unlisted)
			}
			if err != nil {
				return err
			}
			full = len(page) == pageSize
		}
	}
	return nil
}

func (r *run) compareUnlisted(ctx context.Context, ids []IDs) error {
	found, err := r.load(ctx, ids)
	for _, o := range found {
		p := intent{id: o.IntentID, status: missing}
		if o.Unfinished {
			continue // a run of the key is responsible
		}
		if o.IntentID != "" && classify(o, p) != OrphanedRecord {
			if p, err = r.read(ctx, o.IntentID); err != nil {
				return err
			}
		}
		r.compare(o, p)
	}
	return err
}

func (r *run) compare(o order, p intent) {
	kind := r.check(o, p)
	if kind == "" {
		return
	}
	facts := []string{"intent " + p.status, "order " + o.Status}
	if p.OrderID != o.OrderID && p.OrderID != uuid.Nil {
		facts[0] += " of another order"
	}
	if !r.hasAccount(o.AccountID) {
		facts = append(facts, "unknown account")
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
	r.report.Discrepancies = append(r.report.Discrepancies, Discrepancy{
		Kind: kind, IDs: o.IDs, IntentID: p.id, Local: o.Money, Provider: p.Money, Created: p.created, Detail: strings.Join(facts, ", "),
	})
}

func (r *run) check(o order, p intent) Kind {
	if p.status == unreadable || r.isRecent(o, p) {
		return ""
	}
	if p.OrderID != o.OrderID {
		p.status = missing
	}
	return classify(o, p)
}

func (r *run) isRecent(o order, p intent) bool {
	return r.recent(o.CreatedAt, &p.created, o.FinishedAt, o.LockedAt, o.LastRunAt)
}

func classify(o order, p intent) Kind {
	recorded := o.IntentID == p.id
	awaited := o.Unfinished && (recorded || o.IntentID == "") // the key's next run uses this intent
	paid := orders.Status(o.Status).Paid()
	failed := o.ResponseCode != 0 && o.ResponseCode != http.StatusCreated
	charged := p.status == string(payments.StatusSucceeded)
	switch {
	case paid && recorded && !charged:
		return MissingAtProvider
	case p.status == missing && !awaited && o.Status != string(orders.StatusPaymentFailed):
		return OrphanedRecord
	case p.status == missing:
		return ""
	case (recorded || awaited) && p.Money != o.Money:
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

// readBoth reads an intent, and then the order.
func (r *run) readBoth(ctx context.Context, d Discrepancy) (o order, p intent, err error) {
	p.status = missing
	if d.IntentID != "" {
		p, err = r.read(ctx, d.IntentID)
	}
	if err != nil {
		return o, p, err
	}
	found, err := r.load(ctx, []IDs{d.IDs})
	if err != nil {
		return o, p, err
	}
	return found[0], p, nil
}

func (r *run) read(ctx context.Context, id string) (intent, error) {
	read, err := r.Orders.Payments.Get(ctx, id)
	if status := statusOf(err, id); status != "" {
		return intent{id: id, status: status}, r.recordUnreadable(ctx, err)
	}
	if err != nil {
		return intent{}, fmt.Errorf("get %s: %w", id, err)
	}
	return stateOf(read), nil
}

// statusOf returns the status of an object that the provider does not have, or not in a form that can be read, or "".
func statusOf(err error, id string) string {
	if failed, ok := errors.AsType[*payments.Error](err); ok && failed.Code == "resource_missing" {
		return missing
	}
	if slices.Contains(payments.UnreadableIDs(err), id) {
		return unreadable
	}
	return ""
}
