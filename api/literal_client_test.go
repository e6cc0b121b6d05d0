package api_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

// TestLiteralClient runs a client that implements only the member retry and the order that a problem names. Its
// customer approves or declines an action, pays with another card, or leaves. Requests and responses get lost,
// the provider fails, leases end, keys are reaped, and webhooks arrive, in an order that rapid draws.
//
// A failure prints the seed for -rapid.seed, and rapid shrinks the sequence.
func TestLiteralClient(t *testing.T) {
	t.Parallel()
	checkLiteralClient(t, func(c *literalClient) {
		c.events = []string{"", "", "provider", "expiry", "end of the lease", "resume", "webhook", "customer", "customer"}
		c.network = []string{"", "", "request lost", "request cut", "response lost", "sent three times"}
		c.requests = []string{"", "", "", "header twice", "no header", "truncated body", "invalid body", "content type", "API key"}
		holds := []stripetest.Fault{"", "", stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse}
		if hold := rapid.SampledFrom(holds).Draw(c.T, "hold"); hold != "" {
			endpoint := rapid.SampledFrom([]string{createEndpoint, confirmEndpoint}).Draw(c.T, "held")
			c.held = c.fixture.Stripe.Inject(stripetest.Rule{Fault: hold, Endpoint: endpoint})
		}
	})
}

// TestLiteralNever lets its orders be cancelled and its keys expire, and either the database loses rows or
// another tab sends the purchase with a key of its own, so that retry is never while the purchase may be paid.
func TestLiteralNever(t *testing.T) {
	t.Parallel()
	checkLiteralClient(t, func(c *literalClient) {
		c.reference = newKey()
		other := rapid.SampledFrom([]string{"another tab", "lost rows"}).Draw(c.T, "other event")
		c.events = []string{"provider", "expiry", "cancel", "customer", other}
		c.network = []string{"", "response lost", "response lost"}
		c.requests = []string{""}
	})
}

// checkLiteralClient checks that the client always ends, and that the customer never pays twice: once if the
// client has read that the purchase is paid, and not by a key of this client if it has read that it is not.
func checkLiteralClient(t *testing.T, configure func(*literalClient)) {
	t.Helper()
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := &literalClient{T: rt, test: t, fixture: f, keys: []string{newKey()}}
		c.cards = rapid.SliceOfN(rapid.SampledFrom(literalCards), 1, 3).Draw(rt, "cards")
		c.maxSend = rapid.IntRange(1, 12).Draw(rt, "sends with faults")
		c.newAPIKey()
		configure(c)
		defer func() { // also after a failure
			c.release()
			_ = c.inFlight.Wait()
		}()
		paid := c.run()
		c.settle()

		own, all := c.charges(c.keys), c.charges(slices.Concat(c.keys, c.others))
		require.LessOrEqual(rt, all, 1, "another tab may have paid")
		if paid {
			require.Equal(rt, 1, all)
		} else if !c.stopped {
			require.Zero(rt, own)
		}
		require.Zero(rt, c.charges(c.failed), "charged after the final response")
		require.Empty(rt, f.Stripe.OrdersChargedTwice())
	})
}

var literalCards = []string{
	"pm_card_visa", "pm_card_visa", "pm_card_threeDSecure2Required", "pm_card_threeDSecure2Required", "pm_card_chargeDeclinedExpiredCard", "pm_card_nobody",
}

type literalClient struct {
	*rapid.T
	test    *testing.T
	fixture *fixture

	events, network, requests []string // what can happen before a send, to a request on its way, and to its form

	reference    string // of the purchase, or ""
	cards        []string
	keys, others []string // of this client, the current one last, and of the other tab
	failed       []string // keys whose final response is a failure
	apiKey       string
	actions      []string // intents whose client secrets the customer has
	sends        int
	maxSend      int  // with faults
	stopped      bool // without knowing whether the purchase is paid
	faults       []*stripetest.Injection
	held         *stripetest.Injection // nil: the provider holds nothing
	inFlight     errgroup.Group
}

func (c *literalClient) key() string { return c.keys[len(c.keys)-1] }

func (c *literalClient) orderID(key string) string {
	return idempotency.DeriveID("order", c.fixture.Account, idempotency.Key(key)).String()
}

func (c *literalClient) charges(keys []string) (n int) {
	for _, key := range keys {
		n += len(c.fixture.Stripe.ChargesByOrder(c.orderID(key)))
	}
	return n
}

// run sends the purchase until it is paid, has failed for good, or must not be sent any more.
func (c *literalClient) run() (paid bool) {
	for {
		c.sends++
		require.Less(c, c.sends, 100, "the client does not stop")
		if c.sends <= c.maxSend {
			c.event()
		}
		p, status := c.sendOrder()
		switch {
		case status == http.StatusCreated:
			return true
		case p.Retry == client.RetrySameKey:
			c.wait()
		case p.Retry == client.RetryCorrected:
			c.newAPIKey() // whatever the fault is, the next request is correct unless a fault is drawn
		case p.Retry == client.RetryNewKey, p.Retry == client.RetryNever && p.OrderID != "":
			if p.Retry == client.RetryNever && c.read(p.OrderID) {
				return true
			}
			// The order has failed. If it was another one, this key was not used, so both keys are allowed.
			if p.slug() == "order-exists" && rapid.Bool().Draw(c.T, "same key") {
				continue
			}
			c.failed = append(c.failed, c.key())
			if c.cards = c.cards[1:]; len(c.cards) == 0 {
				return false
			}
			c.keys = append(c.keys, newKey())
		case p.Retry == client.RetryNever:
			require.Contains(c, c.requests, "invalid body", "only a damaged request meets a key of another one")
			c.stopped = true
			return false
		default:
			require.Fail(c, "the client has no rule", "%d %v", status, p)
		}
	}
}

// read waits until the order that a problem names has ended, and reports whether it is paid.
func (c *literalClient) read(order string) (paid bool) {
	c.maxSend = 0 // the faults end here, too
	for range 100 {
		got := c.do(http.MethodGet, "/v1/orders/"+order, "")
		require.Equal(c, http.StatusOK, got.status, "%s", got.body)
		var read struct{ Status string }
		require.NoError(c, json.Unmarshal(got.body, &read))
		if read.Status == "paid" || read.Status == "payment_failed" {
			return read.Status == "paid"
		}
		c.wait()
		for _, key := range slices.Concat(c.others, c.keys) {
			_ = c.complete(key) // what fails, a later pass repeats
		}
	}
	require.Fail(c, "the order does not end")
	return false
}

func (c *literalClient) order(card string) string {
	return orderBody(withMember("payment_method", card), func(members map[string]any) {
		if c.reference != "" {
			members["reference"] = c.reference
		}
	})
}

func (c *literalClient) sendOrder() (p problem, status int) {
	body, edit, fault := c.order(c.cards[0]), func(*http.Request) {}, ""
	if c.sends <= c.maxSend {
		fault = rapid.SampledFrom(c.requests).Draw(c.T, "request")
	}
	switch fault {
	case "header twice":
		edit = header("Idempotency-Key", c.key(), c.key())
	case "no header":
		edit = header("Idempotency-Key")
	case "truncated body":
		body = body[:rapid.IntRange(0, len(body)-1).Draw(c.T, "length")]
	case "invalid body":
		body = orderBody(withMember("currency", "nothing"))
	case "content type":
		edit = header("Content-Type", "text/plain")
	case "API key":
		c.exec("UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND revoked_at IS NULL", c.fixture.Account)
		c.fixture.expireAPIKeys()
	}
	p, status = c.post("/v1/orders", c.key(), body, edit)
	switch {
	case p.Outcome == client.OutcomeFinal:
		c.requireNoKey("recovery_point <> 'finished'")
	case p.Outcome == client.OutcomeNone && fault != "no header":
		c.requireNoKey("true")
	}
	return p, status
}

// post returns the problem. A 202 and a lost response, which has no status, are same-key.
func (c *literalClient) post(path, key, body string, edits ...requestEdit) (p problem, status int) {
	fault := ""
	if c.sends <= c.maxSend {
		fault = rapid.SampledFrom(c.network).Draw(c.T, "network")
	}
	edits = append([]requestEdit{header("Idempotency-Key", key)}, edits...)
	got := c.exchange(fault, func() *http.Request { return c.request(http.MethodPost, path, body, edits...) })
	switch {
	case got.status == 0, got.status == http.StatusAccepted:
		c.addAction(got)
		p.Retry = client.RetrySameKey
	case got.status >= http.StatusBadRequest:
		require.NoError(c, json.Unmarshal(got.body, &p))
	}
	return p, got.status
}

func (c *literalClient) request(method, path, body string, edits ...requestEdit) *http.Request {
	return c.fixture.request(c.test, method, path, body, append([]requestEdit{header("Authorization", "Bearer "+c.apiKey)}, edits...)...)
}

// do sends a request that the network does not lose.
func (c *literalClient) do(method, path, body string, edits ...requestEdit) response {
	got, err := c.fixture.do(c.request(method, path, body, edits...))
	require.NoError(c, err)
	c.addAction(got)
	return got
}

// exchange is the network between client and API.
func (c *literalClient) exchange(fault string, request func() *http.Request) response {
	switch fault {
	case "request lost":
		return response{}
	case "request cut":
		c.sendHalf(request())
		return response{}
	case "sent three times":
		c.forward(request())
		c.forward(request())
	}
	var hangUp <-chan struct{}
	if c.held != nil {
		hangUp = c.held.Reached()
	}
	select {
	case got := <-c.forward(request()):
		if fault != "response lost" {
			return got
		}
	case <-hangUp:
	}
	return response{}
}

// forward sends a request, which continues when the client hangs up.
func (c *literalClient) forward(r *http.Request) <-chan response {
	arrived := make(chan response, 1)
	c.inFlight.Go(func() error {
		defer close(arrived)
		got, err := c.fixture.do(r)
		if err == nil {
			arrived <- got
		}
		return err
	})
	return arrived
}

func (c *literalClient) sendHalf(r *http.Request) {
	r.Body, r.GetBody = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, r.ContentLength/2), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
	unchecked := c.fixture.client.Transport.(*contractTransport).base
	if resp, err := unchecked.RoundTrip(r); err == nil {
		_ = resp.Body.Close()
	}
}

func (c *literalClient) addAction(got response) {
	var status struct {
		Action struct {
			PaymentIntentID string `json:"payment_intent_id"`
		}
	}
	_ = json.Unmarshal(got.body, &status)
	c.addIntent(status.Action.PaymentIntentID)
}

func (c *literalClient) addIntent(id string) {
	if id != "" && !slices.Contains(c.actions, id) {
		c.actions = append(c.actions, id)
	}
}

func (c *literalClient) event() {
	switch rapid.SampledFrom(c.events).Draw(c.T, "event") {
	case "provider":
		c.faults = append(c.faults, c.fixture.Stripe.Inject(stripetest.Rule{
			Fault: rapid.SampledFrom([]stripetest.Fault{
				stripetest.CloseBefore, stripetest.RateLimit, stripetest.Unavailable, stripetest.LockTimeout, stripetest.ErrorBefore,
				stripetest.ErrorAfter, stripetest.ErrorLater, stripetest.CloseAfter, stripetest.ResetAfter, stripetest.CutBody, stripetest.BadGateway,
			}).Draw(c.T, "fault"),
			Endpoint: rapid.SampledFrom([]string{createEndpoint, confirmEndpoint, readEndpoint, cancelEndpoint}).Draw(c.T, "endpoint"),
			Times:    rapid.IntRange(1, 4).Draw(c.T, "times"),
		}))
	case "expiry":
		idempotencytest.Reap(c.test, c.fixture.Pool)
		// A failover loses the latest rows, not those of three days ago.
		c.events = slices.DeleteFunc(c.events, func(event string) bool { return event == "lost rows" })
	case "end of the lease":
		c.endLease()
	case "resume":
		key := c.key()
		c.inFlight.Go(func() error {
			_ = c.resume(key)
			return nil
		})
	case "webhook":
		c.deliverEvent()
	case "customer":
		c.customer()
	case "cancel":
		c.cancel()
	case "another tab":
		key := newKey()
		c.others = append(c.others, key)
		c.do(http.MethodPost, "/v1/orders", c.order(rapid.SampledFrom(literalCards).Draw(c.T, "card of the other tab")), header("Idempotency-Key", key))
	case "lost rows":
		c.loseRows()
	}
}

// cancel cancels the current order, also literally. The customer waits for the response.
func (c *literalClient) cancel() {
	order, key := "/v1/orders/"+c.orderID(c.key()), newKey()
	for range 200 {
		p, status := c.post(order+"/cancel", key, "{}")
		switch {
		case status == http.StatusOK, p.slug() == "not-found", p.slug() == "idempotency-key-expired":
			return
		case p.slug() == "order-not-cancelable":
			require.True(c, c.read(p.OrderID))
			return
		}
		require.Equal(c, client.RetrySameKey, p.Retry)
		c.release()
	}
	require.Fail(c, "the cancel is stuck")
}

// loseRows leaves what a failover leaves that lost all rows of the purchase. The status of the key proves
// nothing then.
func (c *literalClient) loseRows() {
	c.exec("DELETE FROM staged_jobs; DELETE FROM audit_records; DELETE FROM orders; DELETE FROM idempotency_keys")
	got := c.do(http.MethodGet, keyPath(c.key()), "")
	var p problem
	require.NoError(c, json.Unmarshal(got.body, &p))
	require.Equal(c, []any{http.StatusNotFound, client.OutcomeUnknown}, []any{got.status, p.Outcome})
}

func (c *literalClient) customer() {
	stripe := c.fixture.Stripe
	for _, id := range c.actions {
		switch rapid.SampledFrom([]string{"approves", "declines", "another card", "leaves"}).Draw(c.T, "customer") {
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
	eventType := rapid.SampledFrom([]string{"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.requires_action"}).Draw(c.T, "type")
	payload, signature, err := c.fixture.Stripe.Event(orderstest.WebhookSecret, eventType, rapid.SampledFrom(c.actions).Draw(c.T, "intent"))
	require.NoError(c, err)
	event, err := c.fixture.Payments.Event(payload, signature)
	require.NoError(c, err)
	c.inFlight.Go(func() error {
		_, _ = c.fixture.Changes.Handle(c.test.Context(), event)
		return nil
	})
}

func (c *literalClient) resume(key string) error {
	_, err := c.fixture.Engine.Resume(c.test.Context(), c.fixture.Account, idempotency.KeyID(c.fixture.Account, idempotency.Key(key)))
	return err
}

// complete continues a key as the completer does. The shop's page then gets an action from the key's status,
// which the client may never have received.
func (c *literalClient) complete(key string) error {
	err := c.resume(key)
	if required, ok := errors.AsType[*httpjson.ActionRequiredError](err); ok {
		c.addIntent(required.Action.(orders.Approval).PaymentIntentID)
	}
	return err
}

// wait lets the others act, from the last fault on.
func (c *literalClient) wait() {
	if c.sends > c.maxSend {
		c.release()
		c.customer()
	} else if rapid.Bool().Draw(c.T, "the provider continues") {
		c.releaseHeld()
	}
}

// release ends the faults of the provider and the leases of dead runs.
func (c *literalClient) release() {
	for _, fault := range c.faults {
		fault.Release()
	}
	c.releaseHeld()
	c.endLease()
}

func (c *literalClient) releaseHeld() {
	if c.held != nil {
		c.held.Release()
		c.held = nil
	}
}

func (c *literalClient) endLease() {
	c.exec("UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour' WHERE account_id = $1 AND locked_at IS NOT NULL", c.fixture.Account)
}

// settle lets everything end that could still charge. The customer tries once more after the final responses.
func (c *literalClient) settle() {
	c.release()
	require.NoError(c, c.inFlight.Wait())
	for _, key := range slices.Concat(c.others, c.keys) {
		err := c.complete(key)
		for n := 0; n < 50 && err != nil && !errors.Is(err, idempotency.ErrNotFound); n++ { // the provider stores its 500s
			c.customer()
			err = c.complete(key)
		}
		if !errors.Is(err, idempotency.ErrNotFound) {
			require.NoError(c, err)
		}
	}
	for _, id := range c.actions {
		_ = c.fixture.Stripe.Authenticate(id, true)
		_ = c.fixture.Stripe.ConfirmAsCustomer(id, "pm_card_visa")
	}
}

func (c *literalClient) newAPIKey() {
	_, apiKey, err := accounts.CreateKey(c.test.Context(), c.fixture.Pool, c.fixture.Account)
	require.NoError(c, err)
	c.apiKey = apiKey
}

func (c *literalClient) exec(statement string, arguments ...any) {
	_, err := c.fixture.Pool.Exec(c.test.Context(), statement, arguments...)
	require.NoError(c, err)
}

func (c *literalClient) requireNoKey(condition string) {
	var n int
	const ofKey = "SELECT count(*) FROM idempotency_keys WHERE account_id = $1 AND idempotency_key = $2 AND "
	require.NoError(c, c.fixture.Pool.QueryRow(c.test.Context(), ofKey+condition, c.fixture.Account, c.key()).Scan(&n))
	require.Zero(c, n, condition)
}
