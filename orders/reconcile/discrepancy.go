package reconcile

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Kind classifies a discrepancy by its remedy. The values are stable.
type Kind string

// The kinds, the most severe first.
const (
	DuplicateCharge     Kind = "duplicate_charge"      // of an order that records another charge
	UnrecordedCharge    Kind = "unrecorded_charge"     // of an order that is lost or not paid
	MissingAtProvider   Kind = "missing_at_provider"   // a recorded charge or refund
	AmountMismatch      Kind = "amount_mismatch"       // or the currency
	UnrecordedRefund    Kind = "unrecorded_refund"     // lost, or made at the dashboard
	OpenIntent          Kind = "open_intent"           // can succeed although its order is finished or lost
	OrphanedRecord      Kind = "orphaned_record"       // a pending order or refund without an unfinished key
	RefundStatusChanged Kind = "refund_status_changed" // without an event
	OrphanedIntent      Kind = "orphaned_intent"       // not charged, and no run will use it
)

func (k Kind) severity() int {
	return slices.Index([]Kind{
		DuplicateCharge, UnrecordedCharge, MissingAtProvider, AmountMismatch, UnrecordedRefund, OpenIntent,
		OrphanedRecord, RefundStatusChanged, OrphanedIntent,
	}, k)
}

// Discrepancy is a difference from the provider, without a client's data.
type Discrepancy struct {
	Kind             Kind      `json:"kind"`
	AccountID        uuid.UUID `json:"account_id"`
	OrderID          uuid.UUID `json:"order_id,omitzero"` // also of a lost order
	RefundID         uuid.UUID `json:"refund_id,omitzero"`
	KeyID            uuid.UUID `json:"key_id,omitzero"`
	IntentID         string    `json:"intent_id,omitempty"`
	ProviderRefundID string    `json:"provider_refund_id,omitempty"`

	Local    Money     `json:"local,omitzero"`
	Provider Money     `json:"provider,omitzero"`
	Created  time.Time `json:"created,omitzero"` // at the provider

	Detail   string `json:"detail"` // for people
	Fixed    bool   `json:"fixed"`
	FixError string `json:"fix_error,omitempty"`
}

// Money is an amount in the smallest unit.
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Report is the result of a comparison.
type Report struct {
	Since          time.Time     `json:"since"` // by the database's clock
	Until          time.Time     `json:"until"` // later activity is ignored
	Intents        int           `json:"intents"`
	ForeignIntents int           `json:"foreign_intents"` // of other programs, ignored
	UnknownIntents int           `json:"unknown_intents"` // of unknown accounts, ignored
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
