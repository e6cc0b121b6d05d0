package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

// TestLiteralNever runs a client that obeys retry literally while its orders are cancelled, its keys expire,
// and either the database loses rows or another tab sends the purchase with a key of its own. The client
// always ends, and the customer never pays twice: once if the client has read that the purchase is paid,
// and otherwise not by a key of this client.
func TestLiteralNever(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	counts := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		c := &neverClient{T: rt, test: t, fixture: f, counts: counts, reference: newKey(), tabs: rapid.Bool().Draw(rt, "another tab")}
		c.loses = !c.tabs
		c.newKey()
		c.cards = rapid.SliceOfN(rapid.SampledFrom(neverCards), 1, 3).Draw(rt, "cards")
		c.faults = rapid.IntRange(1, 8).Draw(rt, "sends with faults")
		paid := c.run()
		c.settle()

		charges, own := 0, 0
		for _, key := range append(c.keys, c.others...) {
			charges += len(f.Stripe.ChargesByOrder(c.orderOf(key)))
		}
		for _, key := range c.keys {
			own += len(f.Stripe.ChargesByOrder(c.orderOf(key)))
		}
		if paid {
			require.Equal(rt, 1, charges)
		} else {
			require.Zero(rt, own)
			require.LessOrEqual(rt, charges, 1, "another tab may have paid since")
		}
	})
	t.Log(counts)
}

var neverCards = []string{"pm_card_visa", "pm_card_visa", "pm_card_threeDSecure2Required", "pm_card_chargeDeclinedExpiredCard", "pm_card_nobody"}

type neverClient struct {
	*rapid.T
	test    *testing.T
	fixture *fixture
	counts  map[string]int

	reference    string
	tabs         bool     // another tab sends the purchase, too, and only the reference keeps the two apart
	loses        bool     // otherwise, the database loses rows, and the reference with them
	cards        []string // the first one is that of the current key
	keys, others []string // of this client, the current one last, and of the other tab
	actions      []string // intents whose secrets the customer has
	sends        int
	faults       int // the number of sends with faults
	injected     []*stripetest.Injection
}

func (c *neverClient) newKey()     { c.keys = append(c.keys, newKey()) }
func (c *neverClient) key() string { return c.keys[len(c.keys)-1] }

func (c *neverClient) orderOf(key string) string {
	return idempotency.DeriveID("order", c.fixture.Account, idempotency.Key(key)).String()
}

// run sends the purchase until it is paid or has failed for good.
func (c *neverClient) run() (paid bool) {
	c.fault()
	for {
		c.sends++
		require.Less(c, c.sends, 100, "the client is stuck")
		p, status := c.send("/v1/orders", c.key(), c.order(c.cards[0]))
		if c.sends <= c.faults {
			c.fault()
		}
		switch {
		case status == http.StatusCreated:
			return true
		case p.Retry == "new-key" || p.Retry == "never" && p.OrderID != "":
			if p.Retry == "never" && c.read(p.OrderID) {
				return true
			}
			// The order has failed. If it was another one, this key was not used, so both keys are allowed.
			if p.slug() == "order-exists" && rapid.Bool().Draw(c.T, "same key") {
				continue
			}
			if c.cards = c.cards[1:]; len(c.cards) == 0 {
				return false
			}
			c.newKey()
		case p.Retry == "same-key":
			c.wait()
		default:
			require.Fail(c, "the client has no rule", "%d %v", status, p)
		}
	}
}

// read waits until the order that a problem names has ended, and reports whether it is paid.
func (c *neverClient) read(order string) (paid bool) {
	for reads := 0; ; reads++ {
		require.Less(c, reads, 100, "the order does not end")
		got := c.do(http.MethodGet, "/v1/orders/"+order, "", "")
		require.Equal(c, http.StatusOK, got.status, "%s", got.body)
		var read struct{ Status string }
		require.NoError(c, json.Unmarshal(got.body, &read))
		switch read.Status {
		case "paid":
			return true
		case "payment_failed":
			return false
		}
		c.faults = 0 // the faults end here, too
		c.wait()
	}
}

func (c *neverClient) order(card string) string {
	return orderBody(withMember("payment_method", card), withMember("reference", c.reference))
}

func (c *neverClient) do(method, path, key, body string) response {
	edit := header("Idempotency-Key")
	if key != "" {
		edit = header("Idempotency-Key", key)
	}
	got, err := c.fixture.do(c.fixture.request(c.test, method, path, body, edit))
	require.NoError(c, err)
	var status struct {
		Action struct {
			PaymentIntentID string `json:"payment_intent_id"`
		}
	}
	require.NoError(c, json.Unmarshal(got.body, &status))
	if id := status.Action.PaymentIntentID; id != "" && !slices.Contains(c.actions, id) {
		c.actions = append(c.actions, id)
	}
	return got
}

// send returns the problem. A 202 and a lost response are same-key.
func (c *neverClient) send(path, key, body string) (p problem, status int) {
	got := c.do(http.MethodPost, path, key, body)
	switch {
	case c.sends <= c.faults && rapid.SampledFrom([]bool{true, true, false}).Draw(c.T, "the response is lost"), got.status == http.StatusAccepted:
		p.Retry = "same-key"
		return p, http.StatusAccepted
	case got.status >= http.StatusBadRequest:
		require.NoError(c, json.Unmarshal(got.body, &p))
		c.counts[p.slug()]++
	}
	c.counts[http.StatusText(got.status)]++
	return p, got.status
}

func (c *neverClient) fault() {
	event := rapid.SampledFrom([]string{"provider", "expiry", "cancel", "another tab", "lost rows", "customer"}).Draw(c.T, "fault")
	if event == "another tab" && !c.tabs || event == "lost rows" && !c.loses {
		return
	}
	c.counts[event]++
	switch event {
	case "provider":
		c.injected = append(c.injected, c.fixture.Stripe.Inject(stripetest.Rule{
			Fault:    rapid.SampledFrom([]stripetest.Fault{stripetest.CloseBefore, stripetest.Unavailable, stripetest.ErrorAfter, stripetest.CloseAfter}).Draw(c.T, "of the provider"),
			Endpoint: rapid.SampledFrom([]string{createEndpoint, confirmEndpoint, readEndpoint, cancelEndpoint}).Draw(c.T, "endpoint"),
			Times:    rapid.IntRange(1, 3).Draw(c.T, "times"),
		}))
	case "expiry":
		idempotencytest.Reap(c.test, c.fixture.Pool)
		c.loses = false // a failover loses the latest rows, not those of three days ago
	case "cancel":
		c.cancel()
	case "another tab":
		key := newKey()
		c.others = append(c.others, key)
		c.do(http.MethodPost, "/v1/orders", key, c.order(rapid.SampledFrom(neverCards).Draw(c.T, "card of the other tab")))
	case "lost rows":
		c.loseRows()
	case "customer":
		c.customer()
	}
}

// cancel cancels the current order, also literally. The customer waits for the response.
func (c *neverClient) cancel() {
	order, key := "/v1/orders/"+c.orderOf(c.key()), newKey()
	for sends := 0; ; sends++ {
		require.Less(c, sends, 200, "the cancel is stuck")
		p, status := c.send(order+"/cancel", key, "{}")
		switch {
		case status == http.StatusOK, p.slug() == "not-found", p.slug() == "idempotency-key-expired":
			return
		case p.slug() == "order-not-cancelable":
			require.True(c, c.read(p.OrderID))
			return
		}
		require.EqualValues(c, "same-key", p.Retry)
		c.release()
	}
}

// loseRows leaves what a failover leaves that lost all rows of the purchase. The status of the key proves
// nothing then.
func (c *neverClient) loseRows() {
	ctx := context.Background()
	require.NoError(c, pgx.BeginFunc(ctx, c.fixture.Pool, func(tx pgx.Tx) error {
		for _, key := range c.keys {
			for _, statement := range []string{
				"DELETE FROM staged_jobs WHERE args->>'order_id' = $1", "DELETE FROM audit_records WHERE resource_id::text = $1",
				"DELETE FROM orders WHERE id::text = $1",
			} {
				if _, err := tx.Exec(ctx, statement, c.orderOf(key)); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, "DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(c.fixture.Account, idempotency.Key(key))); err != nil {
				return err
			}
		}
		return nil
	}))
	got := c.do(http.MethodGet, keyPath(c.key()), "", "")
	var p problem
	require.NoError(c, json.Unmarshal(got.body, &p))
	require.Equal(c, http.StatusNotFound, got.status)
	require.EqualValues(c, "unknown", p.Outcome)
}

// wait lets the others act: the customer, and from the last fault on also the completer.
func (c *neverClient) wait() {
	if c.sends <= c.faults {
		return
	}
	c.release()
	c.customer()
	c.resume()
}

// release ends the faults of the provider and the leases of dead runs.
func (c *neverClient) release() {
	for _, i := range c.injected {
		i.Release()
	}
	c.exec("UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour' WHERE account_id = $1 AND locked_at IS NOT NULL", c.fixture.Account)
}

func (c *neverClient) customer() {
	for _, intent := range c.actions {
		switch rapid.SampledFrom([]string{"approves", "declines", "pays with another card", "leaves"}).Draw(c.T, "customer") {
		case "approves":
			_ = c.fixture.Stripe.Authenticate(intent, true)
		case "declines":
			_ = c.fixture.Stripe.Authenticate(intent, false)
		case "pays with another card":
			_ = c.fixture.Stripe.ConfirmAsCustomer(intent, "pm_card_visa")
		case "leaves":
			c.exec("UPDATE orders SET created_at = created_at - interval '25 hours' WHERE payment_intent_id = $1", intent)
		}
	}
}

// resume continues each unfinished key, as the completer does.
func (c *neverClient) resume() {
	for _, key := range append(c.others, c.keys...) {
		id := idempotency.KeyID(c.fixture.Account, idempotency.Key(key))
		_, _ = c.fixture.Engine.Resume(context.Background(), c.fixture.Account, id) // what fails, a later pass repeats
	}
}

// settle lets everything end that could still charge.
func (c *neverClient) settle() {
	c.faults = 0
	for range 3 {
		c.wait()
	}
}

func (c *neverClient) exec(statement string, arguments ...any) {
	_, err := c.fixture.Pool.Exec(context.Background(), statement, arguments...)
	require.NoError(c, err)
}
