package reconcile

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Kind classifies a discrepancy by its remedy. Its values are stable.
type Kind string

// The kinds, the most severe first. docs/runbook.md has the remedies.
const (
	DuplicateCharge     Kind = "duplicate_charge"      // of an order that records another charge
	UnrecordedCharge    Kind = "unrecorded_charge"     // of an order that is lost or not paid
	MissingAtProvider   Kind = "missing_at_provider"   // a recorded charge or refund
	AmountMismatch      Kind = "amount_mismatch"       // or the currency
	UnrecordedRefund    Kind = "unrecorded_refund"     // lost, or made at the dashboard
	OpenIntent          Kind = "open_intent"           // can succeed although its order is finished or lost
	OrphanedRecord      Kind = "orphaned_record"       // a pending order or refund without an unfinished key
	KeyNeedsReview      Kind = "key_needs_review"      // the completer's attempts are used up
	KeyStuck            Kind = "key_stuck"             // unfinished, and no run holds it
	RefundStatusChanged Kind = "refund_status_changed" // at the provider, without an event
	OrphanedIntent      Kind = "orphaned_intent"       // was not charged, and no run will use it
)

func (k Kind) severity() int {
	return slices.Index([]Kind{
		DuplicateCharge, UnrecordedCharge, MissingAtProvider, AmountMismatch, UnrecordedRefund, OpenIntent, OrphanedRecord,
		KeyNeedsReview, KeyStuck, RefundStatusChanged, OrphanedIntent,
	}, k)
}

// Discrepancy is a difference from the provider. It contains no data of a client.
type Discrepancy struct {
	Kind             Kind      `json:"kind"`
	AccountID        uuid.UUID `json:"account_id"`
	OrderID          uuid.UUID `json:"order_id,omitzero"` // also of a lost order
	RefundID         uuid.UUID `json:"refund_id,omitzero"`
	KeyID            uuid.UUID `json:"key_id,omitzero"`
	IntentID         string    `json:"intent_id,omitempty"`
	ProviderRefundID string    `json:"provider_refund_id,omitempty"`

	Local    Money `json:"local,omitzero"`    // of our order or refund
	Provider Money `json:"provider,omitzero"` // of the intent or refund at the provider

	Created time.Time `json:"created,omitzero"` // at the provider, by its clock

	Detail   string `json:"detail"` // for people
	Fixed    bool   `json:"fixed"`
	FixError string `json:"fix_error,omitempty"`
}

// Money is an amount in the currency's smallest unit.
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Report is the result of a comparison.
type Report struct {
	Since          time.Time     `json:"since"` // by the database's clock
	Until          time.Time     `json:"until"` // later activity is ignored
	Intents        int           `json:"intents"`
	ForeignIntents int           `json:"foreign_intents"` // not created by this API, and ignored
	UnknownIntents int           `json:"unknown_intents"` // of accounts that this database does not have, and ignored
	Orders         int           `json:"orders"`
	Refunds        int           `json:"refunds"`       // the provider's, of our payments
	Discrepancies  []Discrepancy `json:"discrepancies"` // the most severe first, never nil
}

// Open counts the discrepancies that are not fixed.
func (r Report) Open() int {
	n := 0
	for _, d := range r.Discrepancies {
		if !d.Fixed {
			n++
		}
	}
	return n
}
