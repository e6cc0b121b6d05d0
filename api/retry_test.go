package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// A damaged repetition gets retry corrected, and then the response of the first request.
// A new key would charge twice.
func TestRetry_correctedAfterLostResponse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, order := newKey(), orderBody()
	first := f.create(t, key, order) // the client does not receive it
	for name, got := range map[string]response{
		"header twice":   f.create(t, key, order, header("Idempotency-Key", key, key)),
		"no header":      f.create(t, key, order, header("Idempotency-Key")),
		"truncated body": f.create(t, key, order[:len(order)/2]),
		"too large":      f.create(t, key, order+strings.Repeat(" ", 64<<10)),
		"content type":   f.create(t, key, order, header("Content-Type", "text/plain")),
		"API key":        f.create(t, key, order, header("Authorization", "Bearer ok_unknown")),
	} {
		p, outcome := got.problem(t), client.OutcomeUnknown // the key was not looked up
		if name == "no header" {
			outcome = client.OutcomeNone
		}
		require.Equal(t, []any{client.RetryCorrected, outcome}, []any{p.Retry, p.Outcome}, name)
	}
	again := f.create(t, key, order)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(first.body), string(again.body))
	f.requireOnePaidOrder(t)
}

// A literal client implements only retry and Retry-After: it repeats, corrects, uses a
// new key, or stops. Its customer approves or declines an action, pays with another card,
// or does nothing. It never pays twice, whatever faults occur in any order. The log names
// the seed for -rapid.seed.
func TestRetry_literalClientNeverPaysTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	network := newFaultProxy(t, f)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	counts := map[string]int{}
	t.Logf("-rapid.seed=%s", flag.Lookup("rapid.seed").Value)
	rapid.Check(t, func(rt *rapid.T) {
		c := newLiteralClient(rt, t, f, network, &http.Client{Transport: transport}, counts)
		defer func() { _ = c.endFaults() }() // also after a failure
		paid := c.run()
		require.NoError(rt, c.endFaults())
		c.resumeAll()
		for _, id := range c.actions { // the customer tries once more, after the final responses
			_ = f.stripe.Authenticate(id, true)
			_ = f.stripe.ConfirmAsCustomer(id, "pm_card_visa")
		}

		charges := map[string]int{}
		for _, key := range c.keys {
			if n := len(f.stripe.ChargesByOrder(c.orderID(key))); n > 0 {
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
		require.Empty(rt, f.stripe.OrdersChargedTwice())
	})
	t.Log(counts, network.counts)
}

type literalClient struct {
	t       *rapid.T
	test    *testing.T
	fixture *fixture
	network *faultProxy
	http    *http.Client
	counts  map[string]int

	cards   []string // the next one is for the next attempt
	keys    []string // of all attempts; the last one is the current one
	apiKey  string
	failed  map[string]bool // keys whose final response is a failure
	actions []string        // intents whose client secrets the customer has
	faults  []*stripetest.Injection
	sends   int
	maxSend int // with faults
}

func newLiteralClient(t *rapid.T, test *testing.T, f *fixture, network *faultProxy, client *http.Client, counts map[string]int) *literalClient {
	c := &literalClient{
		t: t, test: test, fixture: f, network: network, http: client, counts: counts,
		cards: rapid.SliceOfN(rapid.SampledFrom([]string{
			"pm_card_visa", "pm_card_visa", "pm_card_chargeDeclinedExpiredCard", "pm_card_threeDSecure2Required", "pm_card_threeDSecure2Required", "pm_card_nobody",
		}), 1, 3).Draw(t, "cards"),
		keys: []string{newKey()}, failed: map[string]bool{},
		maxSend: rapid.IntRange(1, 12).Draw(t, "sends with faults"),
	}
	c.newAPIKey()
	var hold *stripetest.Injection
	if fault := rapid.SampledFrom([]stripetest.Fault{"", "", stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse}).Draw(t, "hold"); fault != "" {
		hold = f.stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: rapid.SampledFrom([]string{createEndpoint, confirmEndpoint}).Draw(t, "held")})
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
		c.counts[retry]++
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
		c.counts[name]++
		switch name {
		case "header twice":
			fault = header("Idempotency-Key", c.key(), c.key())
		case "no header":
			fault = header("Idempotency-Key")
		case "truncated body":
			body = body[:rapid.IntRange(0, len(body)-1).Draw(c.t, "length")]
		case "invalid body":
			body = orderBody(withMember("payment_method", c.cards[0]), withMember("currency", "nothing"))
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
	resp, err := c.http.Do(req)
	if err != nil {
		return "same-key"
	}
	got, err := readResponse(resp)
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
	c.counts[event]++
	switch event {
	case "provider":
		c.faults = append(c.faults, c.fixture.stripe.Inject(stripetest.Rule{
			Fault: rapid.SampledFrom([]stripetest.Fault{
				stripetest.CloseBefore, stripetest.RateLimit, stripetest.Unavailable, stripetest.LockTimeout, stripetest.ErrorBefore,
				stripetest.ErrorAfter, stripetest.ErrorLater, stripetest.CloseAfter, stripetest.ResetAfter, stripetest.CutBody, stripetest.BadGateway,
			}).Draw(c.t, "fault"),
			Endpoint: rapid.SampledFrom([]string{createEndpoint, confirmEndpoint, readEndpoint}).Draw(c.t, "endpoint"),
			Times:    rapid.IntRange(1, 4).Draw(c.t, "times"),
		}))
	case "reaper":
		idempotencytest.Reap(c.test, c.fixture.pool)
	case "end of the lease":
		c.endLease()
	case "resume":
		id := idempotency.KeyID(c.fixture.account, idempotency.Key(c.key()))
		c.network.inFlight.Go(func() { _, _ = c.fixture.service.Resume(context.Background(), c.fixture.account, id) })
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
	c.counts["action"]++
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
	stripe := c.fixture.stripe
	for _, id := range c.actions {
		act := rapid.SampledFrom([]string{"approves", "declines", "another card", "leaves"}).Draw(c.t, "customer")
		c.counts[act]++
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
	payload, signature, err := c.fixture.stripe.Event(c.fixture.webhook, eventType, rapid.SampledFrom(c.actions).Draw(c.t, "intent"))
	require.NoError(c.t, err)
	event, err := c.fixture.service.VerifyEvent(payload, signature)
	require.NoError(c.t, err)
	c.network.inFlight.Go(func() { _, _ = c.fixture.service.HandleEvent(context.Background(), event) })
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
	_, apiKey, err := accounts.CreateKey(context.Background(), c.fixture.pool, c.fixture.account)
	require.NoError(c.t, err)
	c.apiKey = apiKey
}

func (c *literalClient) revokeAPIKey() {
	c.exec("UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND revoked_at IS NULL", c.fixture.account)
	c.fixture.expireAPIKeys()
}

func (c *literalClient) endLease() {
	c.exec("UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour' WHERE account_id = $1 AND idempotency_key = ANY ($2)", c.fixture.account, c.keys)
}

func (c *literalClient) exec(statement string, arguments ...any) {
	_, err := c.fixture.pool.Exec(context.Background(), statement, arguments...)
	require.NoError(c.t, err)
}

// requireNoKey verifies outcome: the key does not exist in such a state.
func (c *literalClient) requireNoKey(condition string) {
	var n int
	const ofKey = "SELECT count(*) FROM idempotency_keys WHERE account_id = $1 AND idempotency_key = $2 AND "
	require.NoError(c.t, c.fixture.pool.QueryRow(context.Background(), ofKey+condition, c.fixture.account, c.key()).Scan(&n))
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
		id := idempotency.KeyID(c.fixture.account, idempotency.Key(key))
		_, err := c.fixture.service.Resume(context.Background(), c.fixture.account, id)
		for n := 0; n < 50 && err != nil && !errors.Is(err, idempotency.ErrNotFound); n++ { // the provider stores its 500s
			var required *orders.ActionRequiredError
			if errors.As(err, &required) { // the client did not receive it
				c.addAction(required.PaymentIntentID)
			}
			c.actOnAll()
			_, err = c.fixture.service.Resume(context.Background(), c.fixture.account, id)
		}
		if !errors.Is(err, idempotency.ErrNotFound) {
			require.NoError(c.t, err)
		}
	}
}

func (c *literalClient) orderID(key string) string {
	return idempotency.DeriveID("order", c.fixture.account, idempotency.Key(key)).String()
}
