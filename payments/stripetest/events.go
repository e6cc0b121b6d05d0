package stripetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

type event struct {
	ID              string       `json:"id"`
	Object          string       `json:"object"`
	APIVersion      string       `json:"api_version"`
	Created         int64        `json:"created"`
	Data            eventData    `json:"data"`
	Livemode        bool         `json:"livemode"`
	PendingWebhooks int          `json:"pending_webhooks"`
	Request         eventRequest `json:"request"`
	Type            string       `json:"type"`
}

type eventData struct {
	Object any `json:"object"`
}

// eventRequest is the request that caused an event, null if none did.
type eventRequest struct {
	ID             optional `json:"id"`
	IdempotencyKey optional `json:"idempotency_key"`
}

// Event returns the body and the Stripe-Signature header of a webhook event. It is
// about an intent, its latest charge (if the type begins with "charge.") or a refund.
// The object's state is the current one and need not match the type. The signature uses
// the process's clock.
func (s *Server) Event(secret, eventType, id string) (payload []byte, signature string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if re, ok := s.refunds.get(id); ok {
		payload, signature = SignedEvent(secret, eventType, re, time.Now())
		return payload, signature, nil
	}
	pi, ok := s.intents.get(id)
	switch {
	case !ok:
		return nil, "", fmt.Errorf("stripetest: no payment intent or refund %s", id)
	case !strings.HasPrefix(eventType, "charge."):
		payload, signature = SignedEvent(secret, eventType, pi, time.Now())
	case pi.latest == nil:
		return nil, "", fmt.Errorf("stripetest: %s has no charge", id)
	default:
		payload, signature = SignedEvent(secret, eventType, pi.latest, time.Now())
	}
	return payload, signature, nil
}

// SignedEvent returns the body and the Stripe-Signature header of an event about
// object. It panics if the object cannot be encoded as JSON.
func SignedEvent(secret, eventType string, object any, at time.Time) (payload []byte, signature string) {
	payload, err := json.MarshalIndent(event{ // Stripe indents, too
		ID:              newID("evt_3", 23),
		Object:          "event",
		APIVersion:      "2024-06-20",
		Created:         at.Unix(),
		Data:            eventData{object},
		PendingWebhooks: 1,
		Type:            eventType,
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("stripetest: event: %v", err))
	}
	return payload, fmt.Sprintf("t=%d,v1=%s", at.Unix(), Sign(secret, payload, at))
}

// Sign returns the v1 signature of a payload.
func Sign(secret string, payload []byte, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), payload)
	return fmt.Sprintf("%x", mac.Sum(nil))
}
