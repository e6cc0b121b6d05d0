package payments

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v79/webhook"
)

// signatureTolerance bounds the replay of an intercepted event, as Stripe recommends.
const signatureTolerance = 5 * time.Minute

// ProviderEvent is an event of a webhook or of the list. It omits the object's state, because that may be stale.
type ProviderEvent struct {
	ID       string
	Type     string // such as payment_intent.succeeded
	ObjectID string // of a charge, a refund or a dispute
	IntentID string // "" if the object has none
	Metadata map[string]string

	// NamesIntent means that the object states its intent, or that it has none.
	NamesIntent bool
}

// IsChange reports whether the event is about a refund or a dispute.
func (e ProviderEvent) IsChange() bool { return slices.Contains(changeTypes, e.Type) }

// Event verifies and decodes an event from its unchanged body and Stripe-Signature header.
// Its errors have no causes, because these can quote the payload.
func (c *Client) Event(payload []byte, signature string) (ProviderEvent, error) {
	secret := c.config.WebhookSecret
	if secret == "" {
		return ProviderEvent{}, ErrWebhooksOff
	}
	invalid := webhook.ValidatePayloadWithTolerance(payload, signature, secret, signatureTolerance)
	// The library bounds only the age. With a negative tolerance, it accepts only a signature from the future.
	inFuture := webhook.ValidatePayloadWithTolerance(payload, signature, secret, -signatureTolerance) == nil
	if invalid != nil || inFuture {
		return ProviderEvent{}, ErrSignature
	}
	return decodeEvent(payload)
}

// decodeEvent returns the id of an event also with an error, if it can be read. Only what is used is
// decoded, because other members have changed between the versions of Stripe's API: before 2017-05-25,
// request is a string.
func decodeEvent(payload []byte) (ProviderEvent, error) {
	var event struct {
		Object string `json:"object"`
		ID     string `json:"id"`
		Type   string `json:"type"`
		Data   struct {
			// Absent from a thin event. If its members of these names have other types, it is no payment.
			Object *struct {
				Object        lenient[string]            `json:"object"`
				ID            lenient[string]            `json:"id"`
				PaymentIntent json.RawMessage            `json:"payment_intent"`
				Metadata      lenient[map[string]string] `json:"metadata"`
			} `json:"object"`
		} `json:"data"`
	}
	err := json.Unmarshal(payload, &event)
	if !objectID.MatchString(event.ID) {
		event.ID = ""
	}
	e := ProviderEvent{ID: event.ID}
	if err != nil || event.Object != "event" || event.ID == "" || event.Type == "" || event.Data.Object == nil {
		return e, ErrInvalidEvent
	}
	e.Type = event.Type
	about := event.Data.Object
	id, kind := about.ID.value, about.Object.value
	switch {
	case !objectID.MatchString(id):
	case kind == "payment_intent":
		e.IntentID, e.NamesIntent, e.Metadata = id, true, about.Metadata.value
	case kind == "charge" || kind == "refund" || kind == "dispute":
		e.ObjectID, e.Metadata = id, about.Metadata.value
		e.NamesIntent = json.Unmarshal(about.PaymentIntent, &e.IntentID) == nil &&
			(e.IntentID == "" || objectID.MatchString(e.IntentID))
	}
	return e, nil
}
