package recorded

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// A shop is the API with a database, whose provider is the fake, except that the next call may get another
// response.
type shop struct {
	*orderstest.Shop

	t      *testing.T
	url    string
	key    string
	events int // for unique ids

	provider *interceptor
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, provider: &interceptor{Transport: payments.NewTransport()}}
	s.Shop = orderstest.New(t, orderstest.Options{Payments: payments.Config{Transport: s.provider}})
	router, key := s.API(t, api.Config{})
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	s.url, s.key = server.URL, key
	return s
}

// An interceptor answers instead of the fake, if answer returns a response.
type interceptor struct {
	*http.Transport

	mu     sync.Mutex
	answer func(*http.Request) *response
}

func (i *interceptor) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.answer != nil {
		if a := i.answer(r); a != nil {
			return &http.Response{
				StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
			}, nil
		}
	}
	return i.Transport.RoundTrip(r)
}

func (i *interceptor) set(answer func(*http.Request) *response) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

func (s *shop) do(method, path, body string, header map[string]string) response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return response{resp.StatusCode, resp.Header, text}
}

const orderTotal = 4000

func (s *shop) order(card string, offSession bool) response {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{
		"email": "ada@example.com", "currency": "usd", "payment_method": card, "off_session": offSession,
		"items": []any{map[string]any{"sku": "TEA", "quantity": 2, "unit_amount": orderTotal / 2}},
	})
	require.NoError(s.t, err)
	return s.do(http.MethodPost, "/v1/orders", string(body), map[string]string{"Idempotency-Key": uuid.NewString()})
}

// latest returns the latest order, which a response without a final result does not name.
func (s *shop) latest() (id, intent string) {
	s.t.Helper()
	require.NoError(s.t, s.Pool.QueryRow(s.t.Context(),
		"SELECT id::text, payment_intent_id FROM orders ORDER BY created_at DESC LIMIT 1").Scan(&id, &intent))
	return id, intent
}

func (s *shop) read(id string) object {
	s.t.Helper()
	o, err := decode(s.do(http.MethodGet, "/v1/orders/"+id, "", nil).body)
	require.NoError(s.t, err)
	return o
}

// askAPI places an order whose confirm is declined as recorded.
func askAPI(r *report, s *shop, e exchange, edit plant) {
	s.t.Helper()
	decline := declineOf(e)
	if decline == nil || mayBeCharged(decline) {
		return
	}
	s.provider.set(func(sent *http.Request) *response {
		id, confirm := strings.CutSuffix(sent.URL.Path, "/confirm")
		if !confirm {
			return nil
		}
		answer, body := e.response(), e.Body.copy()
		if intent := body.object("error").object("payment_intent"); intent != nil {
			intent["id"] = path(exchange{Path: id})
		}
		answer.body = body.encode()
		return &answer
	})
	defer s.provider.set(nil)
	s.declined(r, e, "pm_card_visa", decline.text("code"), decline.text("decline_code"), decline.text("message"), edit)
}

// declined places an order, and compares the codes in its response, and of the order.
func (s *shop) declined(r *report, e exchange, card, code, declineCode, message string, edit plant) {
	s.t.Helper()
	r.declineCodes[cmp.Or(declineCode, code)]++
	before := len(s.Stripe.Charges())
	got := s.order(card, e.param("off_session") == "true")
	edit(ofAPI, e, &got)
	problem, err := decode(got.body)
	require.NoError(s.t, err)
	r.equal(e, ofAPI, "the status of the response", http.StatusPaymentRequired, got.status)
	r.equal(e, ofAPI, "the code of the response", cmp.Or(code, "card_declined"), problem.text("code"))
	r.equal(e, ofAPI, "the decline code of the response", declineCode, problem.text("decline_code"))
	r.equal(e, ofAPI, "the provider's message", message, problem.text("provider_message"))
	id, _ := s.latest()
	o := s.read(id)
	r.equal(e, ofAPI, "the status of the order", "payment_failed", o.text("status"))
	r.equal(e, ofAPI, "the code of the order", cmp.Or(code, "card_declined"), o.object("failure").text("code"))
	r.equal(e, ofAPI, "the decline code of the order", declineCode, o.object("failure").text("decline_code"))
	r.equal(e, ofAPI, "the number of charges", before, len(s.Stripe.Charges()))
}

// Every documented decline code reaches the API unchanged.
func TestDeclineCodes(t *testing.T) {
	t.Parallel()
	s, r := newShop(t), newReport()
	for _, code := range stripetest.DeclineCodes() {
		e := exchange{Kind: code, Params: map[string]any{"off_session": "true"}}
		s.declined(r, e, stripetest.DecliningCard("card_declined", code), "card_declined", code, messageOf(code), honest)
	}
	require.Empty(t, r.differences)
}

// messageOf returns the text of the fake's card.
func messageOf(code string) string {
	switch code {
	case "insufficient_funds":
		return "Your card has insufficient funds."
	case "card_velocity_exceeded":
		return "Your card was declined for making repeated attempts too frequently or exceeding its amount limit."
	default:
		return "Your card was declined."
	}
}

// askEvent delivers an event as it was recorded, lists it, and delivers it about an order of ours.
func askEvent(r *report, s *shop, e exchange, edit plant) {
	s.t.Helper()
	about := e.Body.object("data").object("object")
	delivered := response{body: e.Raw}
	edit(ofEvent, e, &delivered)
	got, err := s.Payments.Event(signed(delivered.body))
	if e.Body.text("object") != "event" || about == nil {
		r.read["events without their object"]++
		r.equal(e, ofEvent, "whether it is rejected", true, err != nil)
		return
	}
	r.read["events"]++
	if err != nil {
		r.differ(e, ofEvent, "%v", err)
		return
	}
	r.equal(e, ofEvent, "the event", wantEvent(e.Body), gotEvent(got))
	for prefix, kind := range map[string]string{
		"payment_intent.": "payment_intent", "charge.refunded": "charge", "charge.refund.": "refund", "refund.": "refund",
		"charge.dispute.": "dispute",
	} {
		if strings.HasPrefix(e.Body.text("type"), prefix) {
			r.equal(e, ofEvent, "its object", kind, about.text("object"))
		}
	}

	change, named := got.IsChange(), got.NamesIntent
	for _, way := range []string{"webhook", "list"} {
		event := s.unique(e.Body)
		switch {
		case way == "webhook":
			r.equal(e, ofEvent, "the webhook's status", http.StatusOK, s.deliver(event).status)
		case !change: // not asked for
			continue
		default:
			s.list(r, e, event)
		}
		stored := s.count(`SELECT count(*) FROM provider_events
 WHERE id = $1 AND type = $2 AND object_id IS NOT DISTINCT FROM nullif($3, '') AND intent_id IS NOT DISTINCT FROM nullif($4, '')`,
			event.text("id"), event.text("type"), about.text("id"), about.text("payment_intent"))
		r.equal(e, ofEvent, "whether the event of the "+way+" is stored", change && named, stored == 1)
		found := s.count("SELECT count(*) FROM staged_jobs WHERE last_error = 'event_unreadable' AND args->>'event_id' = $1", event.text("id"))
		r.equal(e, ofEvent, "whether the event of the "+way+" is a finding", change && !named, found == 1)
	}
	if change {
		s.changeOurs(r, e)
	} else {
		s.decideOurs(r, e)
	}
}

// unique returns an event with another id, because others may have recorded the same one.
func (s *shop) unique(event object) object {
	s.events++
	c := event.copy()
	c["id"] = fmt.Sprintf("evt_recorded_%d", s.events)
	return c
}

func (s *shop) deliver(event object) response {
	s.t.Helper()
	payload, signature := signed(event.encode())
	return s.do(http.MethodPost, api.WebhookPath, string(payload), map[string]string{"Stripe-Signature": signature})
}

// list reads a list with only this event.
func (s *shop) list(r *report, e exchange, event object) {
	s.t.Helper()
	s.provider.set(func(sent *http.Request) *response {
		if sent.URL.Path != "/v1/events" {
			return nil
		}
		body := object{"object": "list", "data": []any{map[string]any(event)}, "has_more": false, "url": "/v1/events"}
		return &response{http.StatusOK, http.Header{"Date": {"Mon, 05 Jan 2026 10:00:00 GMT"}}, body.encode()}
	})
	defer s.provider.set(nil)
	if err := s.Changes.ReadList(s.t.Context()); err != nil {
		r.differ(e, ofEvent, "the list: %v", err)
	}
}

func (s *shop) count(query string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.Pool.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}

// changeOurs delivers an event of a refund or a dispute about an order of ours, at which the fake has made the
// same change.
func (s *shop) changeOurs(r *report, e exchange) {
	s.t.Helper()
	event := s.unique(e.Body)
	about := event.object("data").object("object")
	failed := about.text("object") == "refund" && about.text("status") == "failed"
	card, part, refunded := "pm_card_visa", int64(500), int64(500)
	if failed {
		card, refunded = refundCard(about), 0
	}
	require.Equal(s.t, http.StatusCreated, s.order(card, false).status)
	id, intent := s.latest()
	about["payment_intent"] = intent
	var err error
	dispute := about.text("object") == "dispute"
	if dispute {
		about["id"], err = s.Stripe.Dispute(intent, part, about.text("reason"), about.text("status"))
	} else {
		about["id"], err = s.Stripe.RefundAtDashboard(intent, part, "")
	}
	require.NoError(s.t, err)
	if failed {
		require.NoError(s.t, s.Stripe.Settle(about.text("id"), false))
	}
	r.equal(e, ofEvent, "the webhook's status about our order", http.StatusOK, s.deliver(event).status)
	_, err = s.Changes.Worker().RunOnce(s.t.Context())
	require.NoError(s.t, err)
	o := s.read(id)
	switch disputes := o.list("disputes"); {
	case !dispute:
		r.equal(e, ofEvent, "the refunded amount of our order", refunded, o.number("amount_refunded"))
	case len(disputes) == 1:
		r.equal(e, ofEvent, "the dispute of our order", about.text("status")+" "+about.text("reason"),
			disputes[0].text("status")+" "+disputes[0].text("reason"))
	default:
		r.differ(e, ofEvent, "our order has %d disputes", len(disputes))
	}
}

// decideOurs delivers an event of an intent about an order of ours, at which the fake has decided the payment in
// the same way.
func (s *shop) decideOurs(r *report, e exchange) {
	s.t.Helper()
	want := map[string]string{
		"payment_intent.succeeded": "paid", "payment_intent.payment_failed": "payment_failed", "payment_intent.canceled": "payment_failed",
		"payment_intent.processing": "pending", "payment_intent.created": "pending", "payment_intent.requires_action": "pending",
	}[e.Body.text("type")]
	if want == "" {
		return
	}
	require.Equal(s.t, http.StatusServiceUnavailable, s.order(stripetest.ProcessingCard, true).status)
	id, intent := s.latest()
	switch e.Body.text("type") {
	case "payment_intent.succeeded":
		require.NoError(s.t, s.Stripe.Settle(intent, true))
	case "payment_intent.payment_failed":
		require.NoError(s.t, s.Stripe.Settle(intent, false))
	case "payment_intent.canceled":
		_, err := s.Payments.Cancel(s.t.Context(), "recorded-"+intent, intent)
		require.NoError(s.t, err)
	}
	ours, err := s.Payments.Get(s.t.Context(), intent)
	require.NoError(s.t, err)
	event := s.unique(e.Body)
	about := event.object("data").object("object")
	about["id"] = intent
	metadata := map[string]any{}
	for name, value := range ours.Metadata {
		metadata[name] = value
	}
	about["metadata"] = metadata
	r.equal(e, ofEvent, "the webhook's status about our order", http.StatusOK, s.deliver(event).status)
	r.equal(e, ofEvent, "the status of our order", want, s.read(id).text("status"))
}
