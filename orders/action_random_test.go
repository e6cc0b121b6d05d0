package orders_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// The customer acts at random times, concurrently with retries, the completer, events,
// expired leases, the end of the charge window and faults. An order is charged at most once,
// and never if its response is a failure.
func TestAction_randomMoments(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{connections: 4, concurrent: true})
	results := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) { // an action that is impossible now skips
		c := newRandomCase(t, rt, f)
		defer c.end() // also after a failure
		rt.Repeat(map[string]func(*rapid.T){
			"client retries":  func(*rapid.T) { c.start(c.create) },
			"client polls":    func(*rapid.T) { c.start(c.readStatus) },
			"completer":       func(*rapid.T) { c.start(c.resume) },
			"event":           c.event,
			"customer":        func(rt *rapid.T) { c.act(rt) },
			"lease ends":      func(*rapid.T) { c.endLease() },
			"window ends":     c.endWindow,
			"provider fails":  c.fail,
			"provider is up":  func(*rapid.T) { c.release() },
			"runs have ended": func(*rapid.T) { c.wait() },
		})
		results[c.finish(rt)]++
	})
	t.Log(results)
	checkInvariants(t, f)
}

type randomCase struct {
	fixture *fixture
	request orders.Request
	id      string // of the order
	faults  []*stripetest.Injection
	running sync.WaitGroup
	old     bool // the charge window is over

	mu        sync.Mutex
	exposed   string // the intent whose client secret the customer has
	responses []idempotency.Response
}

func newRandomCase(t *testing.T, rt *rapid.T, f *fixture) *randomCase {
	t.Helper()
	key := idempotency.Key("random-" + uuid.NewString())
	card := rapid.SampledFrom(append([]string{challengeCard, challengeCard, visa, declinedCard}, challengeCards...)).Draw(rt, "card")
	c := &randomCase{
		fixture: f.withKey(t, key),
		request: request(t, f.account, key, card),
		id:      orderID(f.account, key).String(),
	}
	c.start(c.create)
	return c
}

func (c *randomCase) start(run func() (idempotency.Result, error)) {
	c.running.Go(func() { _ = c.record(run()) })
}

func (c *randomCase) record(result idempotency.Result, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var action *orders.ActionRequiredError
	switch {
	case err == nil:
		c.responses = append(c.responses, result.Response)
	case errors.As(err, &action):
		c.exposed = action.PaymentIntentID
	}
	return err
}

func (c *randomCase) create() (idempotency.Result, error) {
	return c.fixture.service.Create(context.Background(), c.request)
}

func (c *randomCase) readStatus() (idempotency.Result, error) {
	return c.fixture.readStatus(context.Background())
}

func (c *randomCase) resume() (idempotency.Result, error) {
	return c.fixture.service.Resume(context.Background(), c.request.AccountID, idempotency.KeyID(c.request.AccountID, c.request.Key))
}

// event delivers an event, which may be late or wrong. Here and below, Skip skips no test:
// the action is impossible in this state, and rapid draws another one.
func (c *randomCase) event(rt *rapid.T) {
	eventType := rapid.SampledFrom([]string{
		"payment_intent.created", "payment_intent.requires_action", "payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled",
	}).Draw(rt, "type")
	id := c.intent()
	if id == "" {
		rt.Skip("the customer has no intent yet")
	}
	payload, signature, err := c.fixture.stripe.Event(webhookSecret, eventType, id)
	require.NoError(rt, err)
	c.running.Go(func() { _, _ = handleEvent(context.Background(), c.fixture.service, payload, signature) })
}

func (c *randomCase) intent() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exposed
}

func (c *randomCase) act(rt *rapid.T) {
	id := c.intent()
	if id == "" {
		rt.Skip("the customer has no client secret yet")
	}
	switch rapid.SampledFrom([]string{"approves", "declines", "another card", "a card that must be approved"}).Draw(rt, "act") {
	case "approves":
		_ = c.fixture.stripe.Authenticate(id, true)
	case "declines":
		_ = c.fixture.stripe.Authenticate(id, false)
	case "another card":
		_ = c.fixture.stripe.ConfirmAsCustomer(id, visa)
	default:
		_ = c.fixture.stripe.ConfirmAsCustomer(id, challengeCard)
	}
}

func (c *randomCase) endWindow(rt *rapid.T) {
	if c.old || rapid.IntRange(0, 3).Draw(rt, "window") > 0 {
		rt.Skip("the charge window ends once in a case, and in few cases")
	}
	c.old = true
	c.fixture.backdate(age)
}

func (c *randomCase) fail(rt *rapid.T) {
	c.faults = append(c.faults, c.fixture.stripe.Inject(stripetest.Rule{
		Fault: rapid.SampledFrom([]stripetest.Fault{
			stripetest.CloseBefore, stripetest.CloseAfter, stripetest.Unavailable, stripetest.ErrorBefore, stripetest.ErrorAfter,
			stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse,
		}).Draw(rt, "fault"),
		Endpoint: rapid.SampledFrom([]string{createIntent, confirm, getIntent, cancel}).Draw(rt, "endpoint"),
		Times:    rapid.IntRange(1, 4).Draw(rt, "times"),
	}))
}

func (c *randomCase) release() {
	for _, fault := range c.faults {
		fault.Release()
	}
	c.faults = nil
}

func (c *randomCase) wait() {
	c.release()
	c.running.Wait()
}

func (c *randomCase) end() {
	c.wait()
	c.endLease()
}

func (c *randomCase) endLease() {
	c.fixture.exec(`
UPDATE idempotency_keys
   SET locked_at = locked_at - $2::interval
 WHERE id = $1
   AND recovery_point <> 'finished'`, idempotency.KeyID(c.request.AccountID, c.request.Key), lockTimeout)
}

// finish runs the key until it has a response, and checks it.
func (c *randomCase) finish(rt *rapid.T) string {
	c.end()
	for n := 0; ; n++ {
		require.Less(rt, n, 50, "the key does not end")
		err := c.record(c.resume())
		if errors.Is(err, idempotency.ErrNotFound) { // no run has claimed it
			err = c.record(c.create())
		}
		if err == nil {
			break
		}
		if errors.Is(err, idempotency.ErrActionRequired) {
			c.act(rt)
		}
	}
	if id := c.intent(); id != "" { // the customer tries once more
		_ = c.fixture.stripe.Authenticate(id, true)
		_ = c.fixture.stripe.ConfirmAsCustomer(id, visa)
	}
	final := c.responses[len(c.responses)-1]
	for _, response := range c.responses {
		require.Equal(rt, final, response, "all responses of a key are the same")
	}
	charges := 0
	if final.Status == http.StatusCreated {
		charges = 1
	}
	require.Len(rt, c.fixture.stripe.ChargesByOrder(c.id), charges, "response %d", final.Status)
	return outcomeOf(idempotency.Result{Response: final}, nil)
}
