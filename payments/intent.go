package payments

import (
	"fmt"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Status is the state of a PaymentIntent. Stripe may add others; treat what you
// do not know as not settled.
type Status string

const (
	// StatusSucceeded means charged. Final.
	StatusSucceeded Status = "succeeded"
	// StatusProcessing means that the charge is under way, perhaps for days.
	StatusProcessing Status = "processing"
	// StatusRequiresAction means that the card's owner would have to authenticate.
	StatusRequiresAction Status = "requires_action"
	// StatusRequiresConfirmation means created, not confirmed.
	StatusRequiresConfirmation Status = "requires_confirmation"
	// StatusRequiresPaymentMethod means that it has no payment method, because none was
	// given or because the one given was declined (then LastError is set).
	StatusRequiresPaymentMethod Status = "requires_payment_method"
	// StatusCanceled means that it can never be charged. Final.
	StatusCanceled Status = "canceled"
	// StatusRequiresCapture means authorised, not captured. This package never asks
	// for it.
	StatusRequiresCapture Status = "requires_capture"
)

// Intent is a PaymentIntent as far as we need it. Its client secret is left
// out on purpose.
type Intent struct {
	ID             string
	Status         Status
	Amount         int64 // in the currency's smallest unit
	AmountReceived int64
	Currency       string // lower case
	Metadata       map[string]string
	Created        time.Time // by Stripe's clock, whole seconds
	ChargeID       string    // of the latest charge, which may have failed
	LastError      *Decline  // why the latest attempt failed, nil when none did
}

// Decline is the reason the card was not charged. Message is written by Stripe
// for the card's owner.
type Decline struct{ Code, DeclineCode, Message string }

// Matches says whether the intent is the given order's: same amount, currency
// and metadata["order_id"]. Take no success for an order without asking.
func (i Intent) Matches(amount int64, currency, orderID string) bool {
	return i.Amount == amount && i.Currency == currency && i.Metadata["order_id"] == orderID
}

// chargeable says that money moved or still may.
func (i Intent) chargeable() bool {
	return i.Status == StatusSucceeded || i.Status == StatusProcessing || i.Status == StatusRequiresCapture
}

// newIntent takes over what Stripe sent, or fails when it lacks what makes it
// an answer. stripe-go accepts far less: a bare id string, an empty object.
func newIntent(pi *stripe.PaymentIntent) (Intent, error) {
	if pi == nil || pi.Object != "payment_intent" || pi.ID == "" || pi.Status == "" || pi.Amount <= 0 || pi.Currency == "" {
		return Intent{}, fmt.Errorf("%w: not a whole PaymentIntent", ErrUnreadable)
	}
	intent := Intent{
		ID:             pi.ID,
		Status:         Status(pi.Status),
		Amount:         pi.Amount,
		AmountReceived: pi.AmountReceived,
		Currency:       string(pi.Currency),
		Metadata:       pi.Metadata,
		Created:        time.Unix(pi.Created, 0).UTC(),
	}
	if pi.LatestCharge != nil {
		intent.ChargeID = pi.LatestCharge.ID
	}
	if last := pi.LastPaymentError; last != nil {
		intent.LastError = &Decline{
			Code:        printable(string(last.Code)),
			DeclineCode: printable(string(last.DeclineCode)),
			Message:     printable(last.Msg),
		}
	}
	return intent, nil
}
