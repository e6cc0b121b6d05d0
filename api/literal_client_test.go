package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

// TestLiteralClient runs a client that implements only the member retry and Retry-After. Its
// customer approves or declines an action, pays with another card, or leaves. Requests and
// responses get lost, the provider fails, leases end, keys are reaped, and webhooks arrive, in an
// order that rapid draws. The customer never pays twice.
//
// A failure prints the seed for -rapid.seed, and rapid shrinks the sequence.
func TestLiteralClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	network := newFaultProxy(t, f)
	rapid.Check(t, func(rt *rapid.T) {
		c := newLiteralClient(rt, t, f, network)
		defer func() { _ = c.endFaults() }() // also after a failure
		paid := c.run()
		require.NoError(rt, c.endFaults())
		c.resumeAll()
		for _, id := range c.actions { // the customer tries once more, after the final responses
			_ = f.Stripe.Authenticate(id, true)
			_ = f.Stripe.ConfirmAsCustomer(id, "pm_card_visa")
		}

		charges := map[string]int{}
		for _, key := range c.keys {
			if n := len(f.Stripe.ChargesByOrder(c.orderID(key))); n > 0 {
				charges[key] = n
			}
		}
		if paid {
			require.Equal(rt, map[string]int{c.key(): 1}, charges)
		} else {
			require.LessOrEqual(rt, len(charges), 1)
		}
		for key, n := range charges {
			require.Equal(rt, 1, n)
			require.NotContains(rt, c.failed, key, "charged after its final response")
		}
		require.Empty(rt, f.Stripe.OrdersChargedTwice())
	})
}

type literalClient struct {
	t       *rapid.T
	test    *testing.T
	fixture *fixture
	network *faultProxy

	cards   []string // the next one is for the next attempt
	keys    []string // of all attempts; the last one is the current one
	apiKey  string
	failed  map[string]bool // keys whose final response is a failure
	actions []string        // intents whose client secrets the customer has
	faults  []*stripetest.Injection
	sends   int
	maxSend int // with faults
}

func newLiteralClient(t *rapid.T, test *testing.T, f *fixture, network *faultProxy) *literalClient {
	c := &literalClient{
		t: t, test: test, fixture: f, network: network,
		cards: rapid.SliceOfN(rapid.SampledFrom([]string{
			"pm_card_visa", "pm_card_visa", "pm_card_chargeDeclinedExpiredCard", "pm_card_threeDSecure2Required", "pm_card_threeDSecure2Required", "pm_card_nobody",
		}), 1, 3).Draw(t, "cards"),
		keys: []string{newKey()}, failed: map[string]bool{},
		maxSend: rapid.IntRange(1, 12).Draw(t, "sends with faults"),
	}
	c.newAPIKey()
	var hold *stripetest.Injection
	if fault := rapid.SampledFrom([]stripetest.Fault{"", "", stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse}).Draw(t, "hold"); fault != "" {
		hold = f.Stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: rapid.SampledFrom([]string{createEndpoint, confirmEndpoint}).Draw(t, "held")})
	}
	network.plan(rapid.SliceOfN(rapid.SampledFrom(networkFaults), 0, 8).Draw(t, "faults of the network"), hold)
	return c
}

func (c *literalClient) key() string { return c.keys[len(c.keys)-1] }

func (c *literalClient) run() bool {
	for {
		c.sends++
		require.Less(c.t, c.sends, 100, "the client does not stop")
		retry := c.send()
		switch retry {
		case "paid":
			return true
		case "same-key":
			c.wait()
		case "corrected":
			c.newAPIKey() // whatever the fault is, the next request is correct unless a fault is drawn
		case "new-key":
			c.failed[c.key()] = true
			if c.cards = c.cards[1:]; len(c.cards) == 0 {
				return false
			}
			c.keys = append(c.keys, newKey())
		case "never":
			return false
		default:
			require.Fail(c.t, "unknown retry", retry)
		}
	}
}

func (c *literalClient) send() string {
	body := orderBody(withMember("payment_method", c.cards[0]))
	fault := func(*http.Request) {}
	if c.sends <= c.maxSend {
		c.serverFault()
		name := rapid.SampledFrom([]string{"", "", "", "header twice", "no header", "truncated body", "invalid body", "content type", "API key"}).Draw(c.t, "request")
		switch name {
		case "header twice":
			fault = header("Idempotency-Key", c.key(), c.key())
		case "no header":
			fault = header("Idempotency-Key")
		case "truncated body":
			body = body[:rapid.IntRange(0, len(body)-1).Draw(c.t, "length")]
		case "invalid body":
			body = orderBody(withMember("currency", "nothing"))
		case "content type":
			fault = header("Content-Type", "text/plain")
		case "API key":
			c.revokeAPIKey()
		}
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.network.url+"/v1/orders", strings.NewReader(body))
	require.NoError(c.t, err)
	req.GetBody = nil // net/http must not send it again
	req.Header = http.Header{
		"Authorization": {"Bearer " + c.apiKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {c.key()},
	}
	fault(req)
	got, err := c.network.send(req)
	var p struct{ Retry, Outcome string }
	switch {
	case err != nil:
		return "same-key"
	case got.status == http.StatusCreated:
		return "paid"
	case got.status == http.StatusAccepted:
		c.showAction(got)
		return "same-key" // as the contract says of a 202
	case got.header.Get("Content-Type") != "application/problem+json":
		return "same-key"
	}
	require.NoError(c.t, json.Unmarshal(got.body, &p))
	switch {
	case p.Outcome == "final":
		c.requireNoKey("recovery_point <> 'finished'")
	case p.Outcome == "none" && req.Header.Get("Idempotency-Key") != "":
		c.requireNoKey("true")
	}
	return p.Retry
}

func (c *literalClient) serverFault() {
	event := rapid.SampledFrom([]string{"", "", "provider", "reaper", "end of the lease", "resume", "webhook", "customer"}).Draw(c.t, "event")
	switch event {
	case "provider":
		c.faults = append(c.faults, c.fixture.Stripe.Inject(stripetest.Rule{
			Fault: rapid.SampledFrom([]stripetest.Fault{
				stripetest.CloseBefore, stripetest.RateLimit, stripetest.Unavailable, stripetest.LockTimeout, stripetest.ErrorBefore,
				stripetest.ErrorAfter, stripetest.ErrorLater, stripetest.CloseAfter, stripetest.ResetAfter, stripetest.CutBody, stripetest.BadGateway,
			}).Draw(c.t, "fault"),
			Endpoint: rapid.SampledFrom([]string{createEndpoint, confirmEndpoint, readEndpoint}).Draw(c.t, "endpoint"),
			Times:    rapid.IntRange(1, 4).Draw(c.t, "times"),
		}))
	case "reaper":
		idempotencytest.Reap(c.test, c.fixture.Pool)
	case "end of the lease":
		c.endLease()
	case "resume":
		id := idempotency.KeyID(c.fixture.Account, idempotency.Key(c.key()))
		c.network.inFlight.Go(func() { _, _ = c.fixture.Engine.Resume(context.Background(), c.fixture.Account, id) })
	case "webhook":
		c.deliverEvent()
	case "customer":
		c.actOnAll()
	}
}

func (c *literalClient) showAction(got response) {
	var status struct {
		Action *struct {
			PaymentIntentID string `json:"payment_intent_id"`
		}
	}
	require.NoError(c.t, json.Unmarshal(got.body, &status))
	if status.Action == nil {
		return
	}
	c.addAction(status.Action.PaymentIntentID)
	if c.sends > c.maxSend || rapid.Bool().Draw(c.t, "the customer acts now") {
		c.actOnAll()
	}
}

func (c *literalClient) addAction(id string) {
	if !slices.Contains(c.actions, id) {
		c.actions = append(c.actions, id)
	}
}

func (c *literalClient) actOnAll() {
	stripe := c.fixture.Stripe
	for _, id := range c.actions {
		act := rapid.SampledFrom([]string{"approves", "declines", "another card", "leaves"}).Draw(c.t, "customer")
		switch act {
		case "approves":
			_ = stripe.Authenticate(id, true)
		case "declines":
			_ = stripe.Authenticate(id, false)
		case "another card":
			_ = stripe.ConfirmAsCustomer(id, "pm_card_visa")
		case "leaves":
			c.exec("UPDATE orders SET created_at = created_at - interval '25 hours' WHERE payment_intent_id = $1", id)
		}
	}
}

func (c *literalClient) deliverEvent() {
	if len(c.actions) == 0 {
		return
	}
	eventType := rapid.SampledFrom([]string{"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.requires_action"}).Draw(c.t, "type")
	payload, signature, err := c.fixture.Stripe.Event(orderstest.WebhookSecret, eventType, rapid.SampledFrom(c.actions).Draw(c.t, "intent"))
	require.NoError(c.t, err)
	event, err := c.fixture.Payments.Event(payload, signature)
	require.NoError(c.t, err)
	c.network.inFlight.Go(func() { _, _ = c.fixture.Changes.Handle(context.Background(), event) })
}

func (c *literalClient) wait() {
	if c.sends > c.maxSend || rapid.Bool().Draw(c.t, "the provider continues") {
		c.network.release()
	}
	if c.sends > c.maxSend {
		c.endLease()
	}
}

func (c *literalClient) newAPIKey() {
	_, apiKey, err := accounts.CreateKey(context.Background(), c.fixture.Pool, c.fixture.Account)
	require.NoError(c.t, err)
	c.apiKey = apiKey
}

func (c *literalClient) revokeAPIKey() {
	c.exec("UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND revoked_at IS NULL", c.fixture.Account)
	c.fixture.authClock.Add(int64(5 * time.Second)) // the cache of API keys expires
}

func (c *literalClient) endLease() {
	c.exec("UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour' WHERE account_id = $1 AND idempotency_key = ANY ($2)", c.fixture.Account, c.keys)
}

func (c *literalClient) exec(statement string, arguments ...any) {
	_, err := c.fixture.Pool.Exec(context.Background(), statement, arguments...)
	require.NoError(c.t, err)
}

func (c *literalClient) requireNoKey(condition string) {
	var n int
	const ofKey = "SELECT count(*) FROM idempotency_keys WHERE account_id = $1 AND idempotency_key = $2 AND "
	require.NoError(c.t, c.fixture.Pool.QueryRow(context.Background(), ofKey+condition, c.fixture.Account, c.key()).Scan(&n))
	require.Zero(c.t, n, condition)
}

func (c *literalClient) endFaults() error {
	for _, fault := range c.faults {
		fault.Release()
	}
	c.network.release()
	c.network.plan(nil, nil)
	return c.network.waitIdle()
}

func (c *literalClient) resumeAll() {
	c.endLease()
	for _, key := range c.keys {
		id := idempotency.KeyID(c.fixture.Account, idempotency.Key(key))
		_, err := c.fixture.Engine.Resume(context.Background(), c.fixture.Account, id)
		for n := 0; n < 50 && err != nil && !errors.Is(err, idempotency.ErrNotFound); n++ { // the provider stores its 500s
			var required *httpjson.ActionRequiredError
			if errors.As(err, &required) { // the client did not receive it
				c.addAction(required.Action.(orders.Approval).PaymentIntentID)
			}
			c.actOnAll()
			_, err = c.fixture.Engine.Resume(context.Background(), c.fixture.Account, id)
		}
		if !errors.Is(err, idempotency.ErrNotFound) {
			require.NoError(c.t, err)
		}
	}
}

func (c *literalClient) orderID(key string) string {
	return idempotency.DeriveID("order", c.fixture.Account, idempotency.Key(key)).String()
}

type networkFault string

const (
	noFault      networkFault = "nothing"
	lostRequest  networkFault = "request lost"
	cutRequest   networkFault = "request cut"
	lostResponse networkFault = "response lost"
	cutResponse  networkFault = "response cut"
	proxyError   networkFault = "502 of a proxy, forwarded"
	duplicated   networkFault = "sent three times at once"
)

var networkFaults = []networkFault{noFault, lostRequest, cutRequest, lostResponse, cutResponse, proxyError, duplicated}

// faultProxy is the network between client and API. It does not cancel a forwarded
// request.
type faultProxy struct {
	fixture   *fixture
	url       string
	transport http.RoundTripper // without the checks of the contract
	inFlight  sync.WaitGroup

	mu     sync.Mutex
	script []networkFault        // of the requests to come; then all is fine
	held   *stripetest.Injection // nil: the provider holds nothing
	errs   []error
}

func newFaultProxy(t *testing.T, f *fixture) *faultProxy {
	t.Helper()
	transport := &http.Transport{}
	p := &faultProxy{fixture: f, transport: transport}
	server := httptest.NewServer(p)
	p.url = server.URL
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return p
}

// send is what the client does: nothing checks what the network made of the response.
func (p *faultProxy) send(r *http.Request) (response, error) {
	received, err := p.transport.RoundTrip(r)
	if err != nil {
		return response{}, err
	}
	return readResponse(received)
}

func (p *faultProxy) plan(script []networkFault, hold *stripetest.Injection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script, p.held = script, hold
}

func (p *faultProxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
}

func (p *faultProxy) waitIdle() error {
	p.inFlight.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

func (p *faultProxy) next() (networkFault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var hangUp <-chan struct{}
	if p.held != nil {
		hangUp = p.held.Reached()
	}
	fault := noFault
	if len(p.script) > 0 {
		fault, p.script = p.script[0], p.script[1:]
	}
	return fault, hangUp
}

func (p *faultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault, hangUp := p.next()
	switch fault {
	case lostRequest:
		panic(http.ErrAbortHandler)
	case cutRequest:
		p.forwardHalf(r, body)
		panic(http.ErrAbortHandler)
	case duplicated:
		p.forward(r, body)
		p.forward(r, body)
	}
	var got response
	select {
	case got = <-p.forward(r, body):
	case <-hangUp:
		panic(http.ErrAbortHandler)
	}
	switch fault {
	case lostResponse:
		panic(http.ErrAbortHandler)
	case proxyError:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html><h1>502 Bad Gateway</h1></html>")
	case cutResponse:
		deliver(w, got, len(got.body)/2)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		deliver(w, got, len(got.body))
	}
}

func (p *faultProxy) forward(r *http.Request, body []byte) <-chan response {
	arrived := make(chan response, 1)
	p.inFlight.Go(func() {
		out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.fixture.url+r.URL.Path, bytes.NewReader(body))
		if err == nil {
			out.Header = r.Header.Clone()
			var got response
			if got, err = p.fixture.do(out); err == nil {
				arrived <- got
				return
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, err)
		close(arrived)
	})
	return arrived
}

func (p *faultProxy) forwardHalf(r *http.Request, body []byte) {
	half := io.MultiReader(bytes.NewReader(body[:len(body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF))
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.fixture.url+r.URL.Path, half)
	if err != nil {
		panic(err)
	}
	out.Header, out.ContentLength = r.Header.Clone(), int64(len(body))
	resp, err := p.transport.RoundTrip(out)
	if err == nil {
		_ = resp.Body.Close()
	}
}

func deliver(w http.ResponseWriter, got response, bytes int) {
	for name, values := range got.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(got.body)))
	w.WriteHeader(got.status)
	_, _ = w.Write(got.body[:bytes])
}
