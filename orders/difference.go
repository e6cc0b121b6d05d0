package orders

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Kind is what differs between the books and the provider. The words are stable:
// scripts may compare them.
type Kind string

// The kinds, the gravest first. Only the last three are repaired by
// [Service.Reconcile] itself.
const (
	// KindChargedTwice: an order has a second intent that succeeded. A person
	// refunds one of the two at the provider.
	KindChargedTwice Kind = "charged_twice"

	// KindChargeWithoutOrder: a charge made by us, whose order is not in the
	// books: rows were lost in a failover or a restore. The client's retry with
	// the same key brings the order back (R5), while the provider remembers its
	// own; else a person refunds the charge.
	KindChargeWithoutOrder Kind = "charge_without_order"

	// KindChargeNotBooked: a charge whose order is in the books and does not count
	// it: it failed, or names another intent, or its client was told that it
	// failed. A person refunds the charge.
	KindChargeNotBooked Kind = "charge_not_booked"

	// KindOrderWithoutCharge: an order is paid in the books, but its intent has
	// not succeeded, or the provider does not know it. A person finds out why,
	// first of all whether this is the provider's account that charged it.
	KindOrderWithoutCharge Kind = "order_without_charge"

	// KindAmountDiffers: order and intent do not agree about amount or currency.
	// Somebody changed one of them; a person corrects it at the provider.
	KindAmountDiffers Kind = "amount_differs"

	// KindRefundNotBooked: money went back, or is on its way, and no refund in the
	// books counts it: somebody refunded at the provider, or rows were lost, or its
	// client was told that it failed. Where we made it, the client's retry with the
	// same key brings a lost refund back (R5); else a person makes sure that nobody
	// refunds it again here.
	KindRefundNotBooked Kind = "refund_not_booked"

	// KindRefundNotMade: a refund in the books that the provider does not know, or
	// that nobody will make. A person finds out why, first of all whether this is
	// the provider's account that charged the order.
	KindRefundNotMade Kind = "refund_not_made"

	// KindRefundDiffers: books and provider do not agree about a refund's amount,
	// currency or payment. A person finds out who changed one of them.
	KindRefundDiffers Kind = "refund_differs"

	// KindIntentUnsettled: an intent may still succeed, because it is processing
	// or waits for the card's owner, though its order has an end without it, or is
	// gone. A person cancels it at the provider.
	KindIntentUnsettled Kind = "intent_unsettled"

	// KindOrderAbandoned: an order is pending and has no unfinished key, so that
	// nobody will go on with it. That needs a bug, or a hand in the database; a
	// person ends the order.
	KindOrderAbandoned Kind = "order_abandoned"

	// KindKeyNeedsReview: the completer gave the key up. A person looks, and then
	// uses orders keys retry or orders keys resolve.
	KindKeyNeedsReview Kind = "key_needs_review"

	// KindKeyStuck: an unfinished key that nobody works on. The client's retry,
	// the completer or a fix resumes it.
	KindKeyStuck Kind = "key_stuck"

	// KindRefundMoved: a refund's status changed at the provider, and no event told
	// us. A fix lets the books follow it, which moves no money.
	KindRefundMoved Kind = "refund_moved"

	// KindIntentLeftBehind: an intent that nobody confirmed and nobody will: its
	// create was answered too late, or to a process that died. It moves no money.
	// A fix cancels it.
	KindIntentLeftBehind Kind = "intent_left_behind"
)

// gravity is the order in which a report lists its differences.
func (k Kind) gravity() int {
	return slices.Index([]Kind{
		KindChargedTwice,
		KindChargeWithoutOrder,
		KindChargeNotBooked,
		KindOrderWithoutCharge,
		KindAmountDiffers,
		KindRefundNotBooked,
		KindRefundNotMade,
		KindRefundDiffers,
		KindIntentUnsettled,
		KindOrderAbandoned,
		KindKeyNeedsReview,
		KindKeyStuck,
		KindRefundMoved,
		KindIntentLeftBehind,
	}, k)
}

// Difference is one thing that books and provider do not agree about. It holds
// nothing that a client sent.
type Difference struct {
	Kind      Kind      `json:"kind"`
	AccountID uuid.UUID `json:"account_id"`
	OrderID   uuid.UUID `json:"order_id,omitzero"` // also of an order that is not there
	KeyID     uuid.UUID `json:"key_id,omitzero"`
	IntentID  string    `json:"intent_id,omitempty"`

	// Of what is about a refund: ours, also of one that is not there, and the
	// provider's.
	Refund   uuid.UUID `json:"refund,omitzero"`
	RefundID string    `json:"refund_id,omitempty"`

	Booked     *Money `json:"booked,omitempty"`      // what the order or refund says; nil where there is none
	AtProvider *Money `json:"at_provider,omitempty"` // what the provider says of it; nil where it has none

	Detail string `json:"detail"`        // for people
	Fix    string `json:"fix,omitempty"` // what a fix came to, "" where none was tried
	Fixed  bool   `json:"fixed"`
}

// Money is an amount in the currency's smallest unit.
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Report is what [Service.Reconcile] found.
type Report struct {
	Since          time.Time    `json:"since"` // by the database's clock, as are the others
	Until          time.Time    `json:"until"` // what happened later is for the next time
	Intents        int          `json:"intents"`
	ForeignIntents int          `json:"foreign_intents"` // not made by us: counted, not looked at
	Orders         int          `json:"orders"`
	Refunds        int          `json:"refunds"`     // listed by the provider, of our payments
	Differences    []Difference `json:"differences"` // the gravest first; never nil
}

// Open counts the differences that are not fixed.
func (r Report) Open() int {
	n := 0
	for _, d := range r.Differences {
		if !d.Fixed {
			n++
		}
	}
	return n
}

// charged says that the intent moved money.
func charged(i payments.Intent) bool { return i.Status == payments.StatusSucceeded }

// unconfirmed says that the intent waits for a confirm, or for a payment method
// without having been declined.
func unconfirmed(i payments.Intent) bool {
	return i.Status == payments.StatusRequiresConfirmation ||
		i.Status == payments.StatusRequiresPaymentMethod && i.LastError == nil
}

// ended says that the intent can never move money (R23).
func ended(i payments.Intent) bool {
	return i.Status == payments.StatusCanceled || i.Status == payments.StatusRequiresPaymentMethod && i.LastError != nil
}

// judge compares an intent with what the books say about it. "" means that they
// agree, or that a run of the order's key will see to it.
func (e entry) judge(i payments.Intent) Kind {
	own := e.intentID == i.ID
	awaited := e.unfinished && (own || e.intentID == "") // the key's next run takes this one
	switch {
	case charged(i) && !e.booked():
		return KindChargeWithoutOrder
	case e.paid() && own && !charged(i):
		return KindOrderWithoutCharge
	case e.booked() && (own || awaited) && !e.amountIs(i):
		return KindAmountDiffers
	case awaited:
		return ""
	case charged(i) && own && e.paid() && (e.answered == 0 || e.answered == 201):
		return ""
	case charged(i):
		return KindChargeNotBooked
	case unconfirmed(i):
		return KindIntentLeftBehind
	case ended(i):
		return ""
	default:
		return KindIntentUnsettled
	}
}

// amountIs compares what is asked for, and what was received.
func (e entry) amountIs(i payments.Intent) bool {
	return i.Amount == e.amount && i.Currency == e.currency && (!charged(i) || i.AmountReceived == e.amount)
}

// difference is one about the order, which may be missing.
func (e entry) difference(kind Kind, detail string) Difference {
	d := Difference{Kind: kind, AccountID: e.accountID, OrderID: e.orderID, KeyID: e.keyID, IntentID: e.intentID, Detail: detail}
	if e.booked() {
		d.Booked = &Money{e.amount, e.currency}
	}
	return d
}

// about makes the difference one about an intent, which need not be the one
// that the order names.
func (d Difference) about(i payments.Intent) Difference {
	d.IntentID, d.AtProvider = i.ID, &Money{i.Amount, i.Currency}
	return d
}

// compared says how things stand, for people.
func (e entry) compared(i payments.Intent) string {
	facts := []string{"intent " + string(i.Status)}
	switch {
	case !e.accountKnown:
		facts = append(facts, "no such account")
	case !e.booked():
		facts = append(facts, "no such order")
	default:
		facts = append(facts, "order "+string(e.status))
	}
	if charged(i) && i.AmountReceived != i.Amount {
		facts = append(facts, fmt.Sprintf("%d received", i.AmountReceived))
	}
	if e.intentID != "" && e.intentID != i.ID {
		facts = append(facts, "which names "+e.intentID)
	}
	if e.unfinished {
		facts = append(facts, "key unfinished")
	}
	if e.answered != 0 {
		facts = append(facts, fmt.Sprintf("client told %d", e.answered))
	}
	return strings.Join(facts, ", ")
}

// stuck is the difference of a key that nobody works on.
func stuck(key idempotency.Status) Difference {
	d := Difference{Kind: KindKeyStuck, AccountID: key.AccountID, KeyID: key.ID}
	switch key.Operation {
	case createOrder{}.Name():
		d.OrderID = orderID(key.AccountID, key.Key)
	case createRefund{}.Name():
		d.Refund = refundID(key.AccountID, key.Key)
	}
	if key.NeedsReviewAt != nil {
		d.Kind = KindKeyNeedsReview
	}
	d.Detail = fmt.Sprintf("%s at %s after %d runs, the last at %s",
		key.Operation, key.Point, key.Attempt, key.LastRunAt.UTC().Format(time.RFC3339))
	if key.LastError != "" {
		d.Detail += ": " + key.LastError
	}
	return d
}
