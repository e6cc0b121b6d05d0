package payments

import (
	"encoding/json"
	"time"

	"github.com/stripe/stripe-go/v79/webhook"
)

// signatureTolerance bounds the replay of an intercepted event, as Stripe recommends.
const signatureTolerance = 5 * time.Minute

// Event is a webhook event. It omits the object's state, because that may be stale.
type Event struct {
	ID       string
	Type     string // such as payment_intent.succeeded
	IntentID string
	RefundID string
	Metadata map[string]string
}

// Event verifies and decodes an event from its unchanged body and Stripe-Signature header.
// Its errors have no causes, because these can quote the payload.
func (c *Client) Event(payload []byte, signature string) (Event, error) {
	secret := c.config.WebhookSecret
	if secret == "" {
		return Event{}, ErrWebhooksOff
	}
	invalid := webhook.ValidatePayloadWithTolerance(payload, signature, secret, signatureTolerance)
	// The library bounds only the age. With a negative tolerance, it accepts only a signature from the future.
	inFuture := webhook.ValidatePayloadWithTolerance(payload, signature, secret, -signatureTolerance) == nil
	if invalid != nil || inFuture {
		return Event{}, ErrSignature
	}
	// Only what is used is decoded, because other members have changed between the versions of
	// Stripe's API: before 2017-05-25, request is a string.
	var event struct {
		Object string `json:"object"`
		ID     string `json:"id"`
		Type   string `json:"type"`
		Data   struct {
			Object *json.RawMessage `json:"object"`
		} `json:"data"`
	}
	err := json.Unmarshal(payload, &event)
	switch {
	case event.Object == "v2.core.event": // its other members have other types
		return Event{}, ErrThinEvent
	case err != nil || event.Object != "event" || event.ID == "" || event.Type == "":
		return Event{}, ErrInvalidEvent
	case event.Data.Object == nil:
		return Event{}, ErrThinEvent
	case (*event.Data.Object)[0] != '{':
		return Event{}, ErrInvalidEvent
	}
	about := subject(*event.Data.Object)
	about.ID, about.Type = event.ID, event.Type
	return about, nil
}

func subject(raw json.RawMessage) Event {
	var object struct {
		Object        string            `json:"object"`
		ID            string            `json:"id"`
		PaymentIntent string            `json:"payment_intent"`
		Metadata      map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
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
