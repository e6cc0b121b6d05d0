package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxBody is the maximum size of a body, from the prose of openapi.yaml.
const maxBody = 65_536

// purchase is a valid POST of an order or refund with its own key.
type purchase struct {
	*sequence
	key     string
	plain   request // with the key and the body
	value   any     // of the body
	pending bool    // after 202, 409 or no response even the first final response may be a replay
	lost    bool    // after 503 or no response the run may have continued

	mu         sync.Mutex
	first      *exchange // the first final response
	executions int       // final responses that are not replays
}

func (s *sequence) purchase(id string, path ...string) *purchase {
	r := s.request(id, path...)
	return s.purchaseOf(r, s.body(r.operation), s.key())
}

func (s *sequence) purchaseOf(r request, value any, key string) *purchase {
	r = r.set("Content-Type", pick(s.g, []string{"application/json", "application/json", "application/json; charset=utf-8", `Application/JSON;charset="UTF-8"`}))
	return &purchase{sequence: s, key: key, value: value, plain: s.keyed(r, key).with(encode(value))}
}

// cards are payment methods of the fake Stripe. Most succeed.
var cards = []string{
	"pm_card_visa", "pm_card_visa", "pm_card_mastercard", "pm_card_amex", "pm_card_pendingRefund", "pm_card_visa_chargeDeclined",
	"pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_chargeDeclinedExpiredCard", "pm_card_authenticationRequired", "pm_card_nobody",
}

// body returns a body that the validator accepts.
func (s *sequence) body(o *operation) any {
	g := s.g
	for attempt := range 200 {
		if attempt == 100 {
			g.style = smallest
		}
		value := g.value(o.body).(node)
		if _, ok := value["payment_method"]; ok && g.chance(85) {
			value["payment_method"] = pick(g, cards)
		}
		if _, ok := value["currency"]; ok {
			value["currency"] = pick(g, []string{"usd", "eur", "jpy"}) // the schema does not list them
		}
		if amount, ok := value["amount"].(int); ok {
			value["amount"] = min(amount, maxTotal) // of a refund, see target
		}
		if _, ok := value["reference"]; ok {
			value["reference"] = s.reference() // a purchase of its own
		}
		if textSize(value["items"])+textSize(value["metadata"]) > maxText {
			delete(value, "metadata")
			value["items"] = list(value["items"])[:1] // has at most 564 characters
		}
		if len(encode(value)) > maxBody {
			value["items"] = list(value["items"])[:1]
		}
		g.limitTotal(list(value["items"]))
		if valid(o.bodySchema, value) {
			return value
		}
	}
	panic("no valid body for " + o.id)
}

// maxText is the maximum size of the texts of items and metadata, from the prose of
// openapi.yaml.
const maxText = 16_384

// textSize includes the names of metadata.
func textSize(value any) (size int) {
	switch value := value.(type) {
	case string:
		return len(value)
	case []any:
		for _, element := range value {
			size += textSize(element)
		}
	case node:
		for name, element := range value {
			size += textSize(element)
			if name != "sku" && name != "description" {
				size += len(name)
			}
		}
	}
	return size
}

// limitTotal changes the prices so that the total is allowed.
func (g generator) limitTotal(items []any) {
	total := 0
	for _, item := range slices.Backward(items) {
		item := item.(node)
		quantity, price := item["quantity"].(int), item["unit_amount"].(int)
		if g.chance(80) {
			price = g.between(-100, 5000)
		}
		most := maxTotal / len(items) / quantity
		item["unit_amount"] = max(-most, min(price, most))
		total += quantity * item["unit_amount"].(int)
	}
	if total < minTotal && len(items) > 0 {
		first := items[0].(node)
		first["unit_amount"] = first["unit_amount"].(int) + (minTotal-total)/first["quantity"].(int) + 1
	}
}

// The limits of the total in these currencies, from the prose of openapi.yaml.
const (
	minTotal = 50
	maxTotal = 99_999_999
)

// again returns the same request with the key and the JSON in another form.
func (p *purchase) again() request {
	r := p.keyed(p.plain, p.key)
	if text := p.g.rewritten(p.value); len(text) <= maxBody {
		r = r.with([]byte(text))
	}
	if p.g.chance(20) {
		r = r.set("Prefer", pick(p.g, preferences))
	}
	return r
}

// preferences are valid, unknown and malformed values of Prefer.
var preferences = strings.Split(`wait=1|wait=30|wait=31|wait=99999999999999999999|wait="2"|WAIT=2|wait = 2|foo=bar, wait=2|wait|wait=|wait=0|wait=-1|wait=x|wait=1.5|`+
	`foo; bar="a, b"||,|"|=1|wait=1, wait=2|ä|respond-async=maybe|return=minimal|handling=strict`, "|")

// post sends a request under the key and counts executions.
func (p *purchase) post(r request) *exchange {
	x := p.send(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = p.lost || x == nil || x.resent
	p.pending = p.pending || p.lost || x.status == http.StatusAccepted || x.status == http.StatusConflict
	if x == nil || !x.final() {
		return x
	}
	if !x.replayed() {
		p.executions++
		p.expect(x, p.executions == 1, "second execution under one key")
	}
	if p.first == nil {
		p.first = x
		if id := x.text("id"); x.status == http.StatusCreated && x.operation.id == "createOrder" {
			p.fuzzer.mu.Lock()
			p.paid[id] = true
			p.fuzzer.mu.Unlock()
		}
		return x
	}
	if err := x.sameResponse(p.first); err != nil {
		p.fail(x, "responses under one key differ: %v", err)
	}
	return x
}

// complete retries until the response is final.
func (p *purchase) complete() bool {
	for range 20 {
		x := p.post(p.plain)
		switch {
		case x == nil:
			return false
		case x.final():
			return p.expect(p.first, p.pending || p.executions == 1, "the first response to a request is a replay")
		case x.requiresAction():
			if !p.actAsCustomer(x) {
				return false
			}
		case x.status == http.StatusAccepted || x.status == http.StatusConflict:
			status := p.send(p.request("getIdempotencyKey", p.key).set("Prefer", "wait=10"))
			if status == nil {
				return false
			}
			p.expect(status, status.status == http.StatusOK, "the status of a used key is %d", status.status)
		default:
			p.fail(x, "a valid request was rejected")
			return false
		}
	}
	p.fail(&exchange{request: p.plain}, "no final response after 20 requests")
	return false
}

// actAsCustomer approves or declines the payment. It returns false without the fake.
func (p *purchase) actAsCustomer(x *exchange) bool {
	action := object(x.document["action"])
	id, _ := action["payment_intent_id"].(string)
	secret, _ := action["client_secret"].(string)
	act := "approve"
	if p.g.chance(30) {
		act = "decline"
	}
	if !p.expect(x, id != "" && secret != "", "a response that requires an action contains none") || p.provider == "" {
		return false
	}
	response, err := http.PostForm(p.provider+"/customer/"+id+"/"+act, url.Values{"client_secret": {secret}}) //nolint:noctx // a test's own server
	if err != nil {
		return false
	}
	return response.Body.Close() == nil // 409: the intent is locked, or the customer has already acted
}

func (p *purchase) replay() {
	x := p.post(p.again())
	p.expect(x, x != nil && x.final() && x.replayed(), "a repeated request was not replayed")
}

// reuse sends another request, valid or not, under the key of a finished one.
func (p *purchase) reuse() {
	r := p.plain
	switch other := p.body(r.operation); {
	case p.g.chance(20):
		r = r.with([]byte(`{"other":1}`))
	case p.g.chance(20):
		id := "createOrder"
		if r.operation.id == id {
			id = "createRefund"
		}
		r.operation = p.contract.operations[id]
		r.target = fill(r.operation.path, []string{anyID})
	default:
		r = r.with(encode(other))
	}
	if bytes.Equal(r.body, encode(p.value)) && r.target == p.plain.target {
		return
	}
	x := p.send(r)
	if r.operation.id == "createRefund" && r.target != p.plain.target && x != nil && x.status == http.StatusNotFound {
		return // checks the address first
	}
	p.problem(x, "another request under the key", http.StatusUnprocessableEntity, "idempotency-key-reused")
}

// sameReference sends a paid purchase under another key (R26).
func (p *purchase) sameReference() {
	if value, _ := p.value.(node); value["reference"] == nil || p.first.status != http.StatusCreated {
		return
	}
	other := p.purchaseOf(p.request("createOrder"), p.value, p.sequence.key())
	x := p.send(other.plain)
	if p.problem(x, "the reference of a paid order", http.StatusUnprocessableEntity, "order-exists") {
		p.expect(x, x.text("order_id") == p.first.text("id"), "the reference of a paid order: another order_id")
	}
}

// anyID belongs to no resource.
const anyID = "3eeb7e96-e59c-840f-9cb1-a089daba079f"

// status reads the status of the finished key.
func (p *purchase) status() {
	x := p.send(p.request("getIdempotencyKey", p.key))
	if !p.expect(x, x != nil && x.status == http.StatusOK && x.text("state") == "finished" && x.text("key") == p.key, "the status of a finished key is wrong") {
		return
	}
	stored := object(x.document["response"])
	location, _ := stored["location"].(string)
	problem, _ := stored["type"].(string)
	p.expect(x, fmt.Sprint(stored["status"]) == fmt.Sprint(p.first.status) && location == p.first.header.Get("Location") && problem == p.first.text("type"),
		"the status of a key has another response than the request got")
}

// read reads the created resource, or the order that failed.
func (p *purchase) read() *exchange {
	if location := p.first.header.Get("Location"); location != "" {
		r := p.request("getOrder", p.first.text("id"))
		if p.plain.operation.id == "createRefund" {
			r = p.request("getRefund", p.first.text("order_id"), p.first.text("id"))
		}
		p.expect(p.first, location == r.target, "Location is %q, not the address of the resource", location)
		x := p.send(r)
		p.expect(x, x != nil && x.status == http.StatusOK && (x.text("status") != p.first.text("status") || string(x.reply) == string(p.first.reply)),
			"the created object differs from the response that created it")
		return x
	}
	if id := p.first.text("order_id"); id != "" && p.plain.operation.id == "createOrder" {
		x := p.send(p.request("getOrder", id))
		p.expect(x, x.text("status") == "payment_failed", "a failed order has another status")
		return x
	}
	return nil
}

// unused expects that a rejected request did not use its key.
func (p *purchase) unused() {
	if p.g.chance(50) {
		p.problem(p.send(p.request("getIdempotencyKey", p.key)), "the key of a rejected request", http.StatusNotFound, "not-found")
	}
	if p.g.chance(60) {
		p.complete()
	}
}

// keyPath is the address that the contract gives a key: one that needs escaping is in base64url.
func keyPath(key string) string {
	if url.PathEscape(key) != key || key[0] == '~' {
		key = "~" + base64.RawURLEncoding.EncodeToString([]byte(key))
	}
	return "/v1/idempotency-keys/" + key
}

// orderOf returns a paid order for refunds.
func (s *sequence) orderOf(amount int) *purchase {
	value := node{
		"email": "ada@example.com", "currency": "usd", "payment_method": pick(s.g, cards[:5]),
		"items": []any{node{"sku": "TEA", "quantity": 1, "unit_amount": amount}},
	}
	return s.purchaseOf(s.request("createOrder"), value, s.key())
}

func (s *sequence) concurrently(requests []request, post func(int, request)) {
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() { post(i, r) })
	}
	all.Wait()
}

func isProblem(x *exchange, slugs ...string) bool {
	return x != nil && strings.Contains(" "+strings.Join(slugs, " ")+" ", " "+x.slug()+" ")
}

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
