package reconcile

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Kind classifies a discrepancy by its remedy. The values are stable.
type Kind string

// The kinds that a comparison finds. Sync finds others, and a job of changes that is left is one.
const (
	DuplicateCharge   Kind = "duplicate_charge"    // the order records another charge
	UnrecordedCharge  Kind = "unrecorded_charge"   // the order is lost or not paid
	MissingAtProvider Kind = "missing_at_provider" // a recorded charge or refund does not exist
	AmountMismatch    Kind = "amount_mismatch"     // the amounts or the currencies differ
	UnrecordedRefund  Kind = "unrecorded_refund"   // no order records its payment
	OpenIntent        Kind = "open_intent"         // it can succeed although its order is finished or lost
	OrphanedRecord    Kind = "orphaned_record"     // a pending order or refund has no unfinished key
	OrphanedIntent    Kind = "orphaned_intent"     // it is not charged, and no run will use it
)

// Discrepancy is a difference from the provider, without a client's data.
type Discrepancy struct {
	ID      uuid.UUID  `json:"id,omitzero"`        // for an acknowledgement; none of a job
	FoundAt *time.Time `json:"found_at,omitempty"` // the first time
	Kind    Kind       `json:"kind"`
	IDs
	RefundID         uuid.UUID `json:"refund_id,omitzero"`
	IntentID         string    `json:"intent_id,omitempty"`
	ProviderRefundID string    `json:"provider_refund_id,omitempty"`

	Local    Money     `json:"local,omitzero"`
	Provider Money     `json:"provider,omitzero"`
	Created  time.Time `json:"created,omitzero"` // at the provider
	ReadAt   time.Time `json:"read_at,omitzero"` // when Sync read the order's refunds

	Detail   string          `json:"detail,omitempty"` // for people
	Data     json.RawMessage `json:"data,omitempty"`   // instead of the other members, if another command found it
	Fixed    bool            `json:"fixed"`
	FixError string          `json:"fix_error,omitempty"`
}

// IDs are those of an account, an order, also of a lost one, and its key.
type IDs struct {
	AccountID uuid.UUID `json:"account_id"`
	OrderID   uuid.UUID `json:"order_id,omitzero"`
	KeyID     uuid.UUID `json:"key_id,omitzero"`
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
	ForeignIntents int           `json:"foreign_intents"` // of other programs or databases, ignored
	Refunds        int           `json:"refunds"`         // that the provider listed
	Discrepancies  []Discrepancy `json:"discrepancies"`   // never nil
}

// Open counts the discrepancies that are not fixed.
func (r Report) Open() (n int) {
	for _, d := range r.Discrepancies {
		if !d.Fixed {
			n++
		}
	}
	return n
}
