package orders_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

type randomCase struct {
	fixture *fixture
	request idempotency.Request
	id      string
	keys    []idempotency.Key // of the request, and those that a test adds
	faults  []*stripetest.Injection
	running sync.WaitGroup
	old     bool

	mu        sync.Mutex
	exposed   string                               // the intent whose client secret the customer has
	responses map[uuid.UUID][]idempotency.Response // by the id of the key
}

func (c *randomCase) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
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
	}
}

func newRandomCase(t *testing.T, rt *rapid.T, f *fixture, moreMembers ...string) *randomCase {
	t.Helper()
	key := idempotency.Key("random-" + uuid.NewString())
	card := rapid.SampledFrom(append([]string{challengeCard, challengeCard, visa, declinedCard}, challengeCards...)).Draw(rt, "card")
	c := &randomCase{
		fixture: f.withKey(t, key),
		request: request(t, f.Account, key, card, moreMembers...),
		id:      orderID(f.Account, key).String(),
		keys:    []idempotency.Key{key},

		responses: map[uuid.UUID][]idempotency.Response{},
	}
	c.start(c.create)
	return c
}

func (c *randomCase) start(run func() (idempotency.Result, error)) {
	c.running.Go(func() {
		defer recoverKilled()
		_ = c.record(run())
	})
}

func (c *randomCase) record(result idempotency.Result, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var action *httpjson.ActionRequiredError
	switch {
	case err == nil:
		c.responses[result.KeyID] = append(c.responses[result.KeyID], result.Response)
	case errors.As(err, &action):
		c.exposed = action.Action.(orders.Approval).PaymentIntentID
	}
	return err
}

func (c *randomCase) create() (idempotency.Result, error) {
	return c.fixture.Create(context.Background(), c.request)
}

func (c *randomCase) readStatus() (idempotency.Result, error) {
	return c.fixture.readStatus(context.Background())
}

func (c *randomCase) resume() (idempotency.Result, error) {
	return c.fixture.Engine.Resume(context.Background(), c.request.AccountID, idempotency.KeyID(c.request.AccountID, c.request.Key))
}

// event delivers an event, which may be late or wrong.
func (c *randomCase) event(rt *rapid.T) {
	eventType := rapid.SampledFrom([]string{
		"payment_intent.created", "payment_intent.requires_action", "payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled",
	}).Draw(rt, "type")
	id := c.intent()
	if id == "" {
		rt.Skip("the customer has no intent yet")
	}
	payload, signature, err := c.fixture.Stripe.Event(orderstest.WebhookSecret, eventType, id)
	require.NoError(rt, err)
	c.running.Go(func() {
		defer recoverKilled()
		_, _ = handleEvent(context.Background(), c.fixture.Shop, payload, signature)
	})
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
		_ = c.fixture.Stripe.Authenticate(id, true)
	case "declines":
		_ = c.fixture.Stripe.Authenticate(id, false)
	case "another card":
		_ = c.fixture.Stripe.ConfirmAsCustomer(id, visa)
	default:
		_ = c.fixture.Stripe.ConfirmAsCustomer(id, challengeCard)
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
	c.faults = append(c.faults, c.fixture.Stripe.Inject(stripetest.Rule{
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
 WHERE idempotency_key = ANY($1)
   AND recovery_point <> 'finished'`, c.keys, leaseDuration)
}

// runUntilFinal runs a key until it has a response, or returns the error of a request that does not use it.
func (c *randomCase) runUntilFinal(rt *rapid.T, resume, request func() (idempotency.Result, error)) error {
	for n := 0; ; n++ {
		require.Less(rt, n, 50, "the key does not end")
		err := c.record(resume())
		if errors.Is(err, idempotency.ErrNotFound) { // no run has claimed it
			err = c.record(request())
		}
		_, provider := errors.AsType[*httpjson.ProviderError](err)
		switch {
		case errors.Is(err, idempotency.ErrActionRequired):
			c.act(rt)
		case !provider && !errors.Is(err, idempotency.ErrInProgress):
			return err
		}
	}
}

// payOnceMore is a customer who tries again with the client secret.
func (c *randomCase) payOnceMore() {
	if id := c.intent(); id != "" {
		_ = c.fixture.Stripe.Authenticate(id, true)
		_ = c.fixture.Stripe.ConfirmAsCustomer(id, visa)
	}
}

// final returns the response of a key, or none.
func (c *randomCase) final(rt *rapid.T, key idempotency.Key) (final idempotency.Response) {
	for i, response := range c.responses[idempotency.KeyID(c.request.AccountID, key)] {
		if i == 0 {
			final = response
		}
		require.Equal(rt, final, response, "all responses of a key are the same")
	}
	return final
}
