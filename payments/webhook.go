package payments

import (
	"encoding/json"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/webhook"
)

// signatureTolerance is how far the time of a signature may be from ours, as
// Stripe recommends. Within it a delivery can be replayed by whoever saw it.
const signatureTolerance = 5 * time.Minute

// Event is what Stripe tells a webhook, as far as it is used: whom it is about.
// What it says of them is old by the time it is read, and left out on purpose.
type Event struct {
	ID       string
	Type     string            // such as payment_intent.succeeded
	IntentID string            // of the intent, or of the intent of the charge or refund; else empty
	RefundID string            // of the refund; else empty
	Metadata map[string]string // of the intent, of the charge, which takes it over, or of the refund
}

// Event reads a delivery to the webhook: the body as it came and its
// Stripe-Signature header. Errors are [ErrWebhooksOff] and [ErrSignature].
func (c *Client) Event(payload []byte, signature string) (Event, error) {
	if c.webhookSecret == "" {
		return Event{}, ErrWebhooksOff
	}
	event, err := webhook.ConstructEventWithOptions(payload, signature, c.webhookSecret, webhook.ConstructEventOptions{
		Tolerance:                signatureTolerance,
		IgnoreAPIVersionMismatch: true, // ids and metadata are the same in all of them
	})
	if err != nil || event.Object != "event" || event.ID == "" || event.Type == "" || event.Data == nil || event.Data.Object == nil {
		return Event{}, ErrSignature // without the cause, which may quote the payload
	}
	// The library bounds the past only. What it finds too old by a negative
	// tolerance is not from the future.
	if webhook.ValidatePayloadWithTolerance(payload, signature, c.webhookSecret, -signatureTolerance) == nil {
		return Event{}, ErrSignature
	}
	about := subject(event.Data)
	about.ID, about.Type = event.ID, string(event.Type)
	return about, nil
}

// subject is whom an event is about, if that is a payment or a refund.
func subject(data *stripe.EventData) Event {
	var object struct {
		Object        string            `json:"object"`
		ID            string            `json:"id"`
		PaymentIntent string            `json:"payment_intent"`
		Metadata      map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(data.Raw, &object); err != nil {
		return Event{} // has members of these names, but of other types: no payment
	}
	switch object.Object {
	case "payment_intent":
		return Event{IntentID: object.ID, Metadata: object.Metadata}
	case "charge":
		return Event{IntentID: object.PaymentIntent, Metadata: object.Metadata}
	case "refund":
		return Event{IntentID: object.PaymentIntent, RefundID: object.ID, Metadata: object.Metadata}
	default:
		return Event{}
	}
}
