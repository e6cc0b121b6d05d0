package payments

import (
	"encoding/json"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/webhook"
)

// signatureTolerance bounds the replay of an intercepted event, as Stripe recommends.
const signatureTolerance = 5 * time.Minute

// Event is a webhook event, without the object's state, which may be stale.
type Event struct {
	ID       string
	Type     string // such as payment_intent.succeeded
	IntentID string
	RefundID string
	Metadata map[string]string
}

// Event verifies and decodes an event from its unchanged body and Stripe-Signature header.
// Its errors have no causes, which can quote the payload.
func (c *Client) Event(payload []byte, signature string) (Event, error) {
	secret := c.config.WebhookSecret
	if secret == "" {
		return Event{}, ErrWebhooksOff
	}
	// With a negative tolerance, the library accepts only a signature from the future.
	if webhook.ValidatePayloadWithTolerance(payload, signature, secret, signatureTolerance) != nil ||
		webhook.ValidatePayloadWithTolerance(payload, signature, secret, -signatureTolerance) == nil {
		return Event{}, ErrSignature
	}
	var event stripe.Event // its members are the same in all versions of Stripe's API
	err := json.Unmarshal(payload, &event)
	switch {
	case event.Object == "v2.core.event": // its other members have other types
		return Event{}, ErrThinEvent
	case err != nil || event.Object != "event" || event.ID == "" || event.Type == "":
		return Event{}, ErrInvalidEvent
	case event.Data == nil || event.Data.Object == nil:
		return Event{}, ErrThinEvent
	}
	about := subject(event.Data)
	about.ID, about.Type = event.ID, string(event.Type)
	return about, nil
}

func subject(data *stripe.EventData) Event {
	var object struct {
		Object        string            `json:"object"`
		ID            string            `json:"id"`
		PaymentIntent string            `json:"payment_intent"`
		Metadata      map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(data.Raw, &object); err != nil {
		return Event{} // members of these names have other types: not a payment
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
