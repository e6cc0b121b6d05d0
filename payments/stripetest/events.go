package stripetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const apiVersion = "2024-06-20"

// Event returns the body and the Stripe-Signature header of an event about a refund, an intent
// or, if the type begins with "charge.", its latest charge.
func (s *Server) Event(secret, eventType, id string) (payload []byte, signature string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi, isIntent := s.intents.byID[id]
	re, isRefund := s.refunds.byID[id]
	var object any = pi
	switch {
	case isRefund:
		object = re
	case !isIntent:
		return nil, "", fmt.Errorf("stripetest: no payment intent or refund %s", id)
	case strings.HasPrefix(eventType, "charge."):
		ch, charged := s.charges.byID[string(pi.LatestCharge)]
		if !charged {
			return nil, "", fmt.Errorf("stripetest: %s has no charge", id)
		}
		object = ch
	}
	payload, signature = SignedEvent(secret, eventType, object, time.Now())
	return payload, signature, nil
}

// SignedEvent is like Event, for any object.
func SignedEvent(secret, eventType string, object any, at time.Time) (payload []byte, signature string) {
	payload, err := json.MarshalIndent(map[string]any{ // Stripe indents, too
		"id":               newID("evt_3", 23),
		"object":           "event",
		"api_version":      apiVersion,
		"created":          at.Unix(),
		"data":             map[string]any{"object": object},
		"livemode":         false,
		"pending_webhooks": 1,
		"request":          map[string]any{"id": nil, "idempotency_key": nil},
		"type":             eventType,
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
