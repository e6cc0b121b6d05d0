package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxEvent is the maximum size of an event, from the prose of openapi.yaml.
const maxEvent = 262_144

// fakeKey is the key of the fake Stripe, not a secret.
const fakeKey = "sk_test_fake"

// signed adds Stripe's signature with a time relative to now.
func signed(r request, secret string, age time.Duration) request {
	at := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", at, r.body)
	return r.set("Stripe-Signature", "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
}

// events sends events of the provider. The server must reject most of them.
func (s *sequence) events() {
	event := node{"id": "evt_fuzz", "object": "event", "type": "payment_intent.succeeded", "data": node{"object": s.intent()}}
	r := s.request("receiveStripeEvent").set("Content-Type", "application/json").with(encode(event))
	large := r.with(padded(r.body, maxEvent+1))
	for _, rejected := range []struct {
		name   string
		sent   request
		status int
		slug   string
	}{
		{"event of another media type", r.set("Content-Type", "text/plain"), http.StatusUnsupportedMediaType, "unsupported-media-type"},
		{"compressed event", r.set("Content-Encoding", "gzip"), http.StatusUnsupportedMediaType, "unsupported-media-type"},
		{"event that is too large", large, http.StatusRequestEntityTooLarge, "too-large"},
		{"unknown parameter", func(r request) request { r.target += "?a=1"; return r }(r), http.StatusUnprocessableEntity, "validation-failed"},
	} {
		if s.g.chance(20) {
			s.problem(s.send(rejected.sent), rejected.name, rejected.status, rejected.slug)
		}
	}
	if s.secret == "" { // the webhook may be off
		x := s.send(r)
		s.expect(x, isProblem(x, "malformed-request", "not-found"), "an unsigned event was not rejected")
		return
	}
	malformed := func(name string, r request) {
		s.problem(s.send(r), name, http.StatusBadRequest, "malformed-request")
	}
	malformed("unsigned event", r.set("Stripe-Signature", pick(s.g, []string{"", "t=1,v1=00", "v1=00", "t=" + strconv.FormatInt(time.Now().Unix(), 10), "ä"})))
	malformed("event without signature", r)
	malformed("event signed with another secret", signed(r, s.secret+"x", 0))
	malformed("event signed long ago", signed(r, s.secret, pick(s.g, []time.Duration{6 * time.Minute, 24 * time.Hour, -10 * time.Minute})))
	changed := signed(r, s.secret, 0)
	malformed("event changed after it was signed", changed.with(append(bytes.Clone(r.body), ' ')))

	if name, faulty := s.invalid(r.operation, event); name != "" {
		malformed("signed, "+name, signed(r.with(encode(faulty)), s.secret, 0))
	}
	malformed("signed text", signed(r.with([]byte(pick(s.g, []string{"", "{", "[]", "null", `{"id":1E400}`}))), s.secret, 0))
	for range 1 + s.g.IntN(2) {
		x := s.send(signed(r, s.secret, time.Duration(s.g.IntN(200))*time.Second))
		s.expect(x, x != nil && x.status == http.StatusOK, "a signed event was rejected")
	}
}

// intent is the payment of a new order, or a payment of another program.
func (s *sequence) intent() any {
	foreign := node{"id": "pi_foreign", "object": "payment_intent", "metadata": node{"order": "7"}}
	if s.provider == "" || s.g.chance(50) {
		return foreign
	}
	order := s.orderOf(1000)
	if !order.complete() {
		return foreign
	}
	sent, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.provider+"/v1/payment_intents/"+order.first.text("payment_intent_id"), nil)
	if err != nil {
		return foreign
	}
	sent.Header.Set("Authorization", "Bearer "+fakeKey)
	got, err := s.client.Do(sent)
	if err != nil {
		return foreign
	}
	defer func() { _ = got.Body.Close() }()
	intent, err := jsonschema.UnmarshalJSON(got.Body)
	if !s.expect(order.first, err == nil && object(intent)["id"] == order.first.text("payment_intent_id"), "the provider does not know the payment of an order") {
		return foreign
	}
	return intent
}
