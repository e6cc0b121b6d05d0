package orders_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

// Run this test after every change of a step: go test ./orders -run TestOrder_randomMoments.
//
// Each case is one order, with drawn, concurrent actions of the client, the completer, webhooks, the customer, the
// provider and a process that is killed. Most cases also have two cancels of the order, an operator, and a second key
// with the same reference. Then every fault ends, and the keys run until each has a response. An order is charged once
// if that is 201, and otherwise never. At most one of the two orders is charged. If a cancel is answered with 200, its
// order is not charged, and no confirm of ours is executed from then on. A failure prints its seed (-rapid.seed=N);
// -rapid.checks=1000 runs more cases.
func TestOrder_randomMoments(t *testing.T) {
	t.Parallel()
	kills := &killer{}
	f := NewFixture(t, Setup{Connections: 4, Concurrent: true})
	kills.fixture = f
	var closed sync.Map   // paths of the confirms of orders whose cancel was answered with 200
	var late atomic.Int64 // confirms that were sent and executed after that
	f.Transport.Intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		kills.call()
		_, after := closed.Load(req.URL.Path)
		resp, err := next.RoundTrip(req)
		if after && err == nil && resp.StatusCode != http.StatusBadRequest && resp.Header.Get("Idempotent-Replayed") == "" {
			late.Add(1)
		}
		return resp, err
	})
	results := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		c := newRandomCase(t, rt, f, &closed)
		defer c.end()
		defer kills.disarm()
		actions := c.actions()
		actions["kill"] = func(rt *rapid.T) { kills.arm(c.keys, rapid.IntRange(1, 3).Draw(rt, "calls")) }
		rt.Repeat(actions)
		kills.disarm()
		results[c.finish(rt)]++
		require.Zero(rt, late.Load(), "confirms after a 200")
	})
	t.Log(results)
	CheckInvariants(t, f)
}

type randomCase struct {
	fixture *Fixture
	request idempotency.Request
	id      string
	alone   bool                // without cancels, an operator and the second key
	second  idempotency.Request // another purchase with the same reference
	cancels []idempotency.Key
	keys    []idempotency.Key // all of them
	closed  *sync.Map
	faults  []*stripetest.Injection
	running sync.WaitGroup
	old     bool

	mu        sync.Mutex
	exposed   string                               // the intent whose client secret the customer has
	responses map[uuid.UUID][]idempotency.Response // by the id of the key
}

func newRandomCase(t *testing.T, rt *rapid.T, f *Fixture, closed *sync.Map) *randomCase {
	t.Helper()
	key := idempotency.Key("random-" + uuid.NewString())
	card := rapid.SampledFrom(append([]string{ChallengeCard, ChallengeCard, Visa, DeclinedCard}, challengeCards...)).Draw(rt, "card")
	reference := fmt.Sprintf(`,"reference":%q`, uuid.NewString())
	c := &randomCase{
		fixture:   f.WithKey(t, key),
		request:   OrderRequest(t, f.Account, key, card, reference),
		id:        OrderID(f.Account, key).String(),
		alone:     rapid.IntRange(0, 3).Draw(rt, "alone") == 0,
		second:    OrderRequest(t, f.Account, key+"-second", Visa, reference),
		cancels:   []idempotency.Key{key + "-cancel-1", key + "-cancel-2"},
		keys:      []idempotency.Key{key, key + "-second", key + "-cancel-1", key + "-cancel-2"},
		closed:    closed,
		responses: map[uuid.UUID][]idempotency.Response{},
	}
	c.start(c.create)
	return c
}

func (c *randomCase) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){
		"client retries":  func(*rapid.T) { c.start(c.create) },
		"client polls":    func(*rapid.T) { c.start(c.readStatus) },
		"completer":       func(*rapid.T) { c.start(c.resume(c.request.Key)) },
		"event":           c.event,
		"customer":        func(rt *rapid.T) { c.act(rt) },
		"lease ends":      func(*rapid.T) { c.endLease() },
		"window ends":     c.endWindow,
		"provider fails":  c.fail,
		"provider is up":  func(*rapid.T) { c.release() },
		"runs have ended": func(*rapid.T) { c.wait() },
	}
	if !c.alone {
		actions["cancel"] = func(rt *rapid.T) { c.start(c.cancel(c.drawCancel(rt))) }
		actions["completer of the cancel"] = func(rt *rapid.T) { c.start(c.resume(c.drawCancel(rt))) }
		actions["second key"] = func(*rapid.T) { c.start(c.createSecond) }
		actions["operator"] = c.resolve
	}
	return actions
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
	return readStatus(context.Background(), c.fixture)
}

func (c *randomCase) drawCancel(rt *rapid.T) idempotency.Key {
	return rapid.SampledFrom(c.cancels).Draw(rt, "cancel")
}

func (c *randomCase) cancel(key idempotency.Key) func() (idempotency.Result, error) {
	return func() (idempotency.Result, error) {
		return c.closes(c.fixture.Cancel(context.Background(), cancelRequest(c.request.AccountID, uuid.MustParse(c.id), key)))
	}
}

func (c *randomCase) resume(key idempotency.Key) func() (idempotency.Result, error) {
	return func() (idempotency.Result, error) {
		return c.closes(c.fixture.Engine.Resume(context.Background(), c.request.AccountID, idempotency.KeyID(c.request.AccountID, key)))
	}
}

// closes notes the confirm that must not be executed any more.
func (c *randomCase) closes(result idempotency.Result, err error) (idempotency.Result, error) {
	var order orders.Order
	if result.Response.Status == http.StatusOK && json.Unmarshal(result.Response.Body, &order) == nil && order.PaymentIntentID != nil {
		c.closed.Store("/v1/payment_intents/"+*order.PaymentIntentID+"/confirm", true)
	}
	return result, err
}

func (c *randomCase) createSecond() (idempotency.Result, error) {
	return c.fixture.Create(context.Background(), c.second)
}

func (c *randomCase) resolve(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "operator") > 0 {
		rt.Skip("an operator acts in few cases")
	}
	c.start(func() (idempotency.Result, error) {
		return c.fixture.Resolve(context.Background(), c.request.AccountID, idempotency.KeyID(c.request.AccountID, c.request.Key), Operator)
	})
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
	payload, signature, err := c.fixture.Stripe.Event(WebhookSecret, eventType, id)
	require.NoError(rt, err)
	c.running.Go(func() {
		defer recoverKilled()
		if event, err := c.fixture.Payments.Event(payload, signature); err == nil {
			_, _ = c.fixture.Changes.Handle(context.Background(), event)
		}
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
		_ = c.fixture.Stripe.ConfirmAsCustomer(id, Visa)
	default:
		_ = c.fixture.Stripe.ConfirmAsCustomer(id, ChallengeCard)
	}
}

func (c *randomCase) endWindow(rt *rapid.T) {
	if c.old || rapid.IntRange(0, 3).Draw(rt, "window") > 0 {
		rt.Skip("the charge window ends once in a case, and in few cases")
	}
	c.old = true
	c.fixture.Backdate(age)
}

func (c *randomCase) fail(rt *rapid.T) {
	c.faults = append(c.faults, c.fixture.Stripe.Inject(stripetest.Rule{
		Fault: rapid.SampledFrom([]stripetest.Fault{
			stripetest.CloseBefore, stripetest.CloseAfter, stripetest.Unavailable, stripetest.ErrorBefore, stripetest.ErrorAfter,
			stripetest.HoldArrival, stripetest.HoldRunning, stripetest.HoldResponse,
		}).Draw(rt, "fault"),
		Endpoint: rapid.SampledFrom([]string{CreateIntent, Confirm, GetIntent, Cancel}).Draw(rt, "endpoint"),
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
	c.fixture.Exec(`
UPDATE idempotency_keys
   SET locked_at = locked_at - $2::interval
 WHERE idempotency_key = ANY($1)
   AND recovery_point <> 'finished'`, c.keys, LeaseDuration)
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
		_ = c.fixture.Stripe.ConfirmAsCustomer(id, Visa)
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

func (c *randomCase) finish(rt *rapid.T) string {
	c.end()
	if c.alone {
		c.cancels = nil
	}
	var paid *httpjson.Rejection
	unclaimed := false // a cancel came before the order, or after its payment
	endCancels := func() {
		for _, key := range c.cancels {
			if err := c.runUntilFinal(rt, c.resume(key), c.cancel(key)); err != nil {
				unclaimed = true
				require.True(rt, errors.As(err, &paid) && paid.Slug == "order-not-cancelable", "%v", err)
			}
		}
	}
	exists := &httpjson.Rejection{}
	cancelsFirst := rapid.Bool().Draw(rt, "cancels first") && hasOrder(c.fixture, c.id)
	if cancelsFirst {
		endCancels()
	}
	err := c.runUntilFinal(rt, c.resume(c.request.Key), c.create)
	require.True(rt, err == nil || errors.As(err, &exists) && exists.Slug == "order-exists", "%v", err)
	if !cancelsFirst && err == nil {
		endCancels()
	}
	c.payOnceMore()
	charges, final := len(c.fixture.Stripe.ChargesByOrder(c.id)), c.final(rt, c.request.Key)
	if !c.alone {
		second := c.runUntilFinal(rt, c.resume(c.second.Key), c.createSecond)
		require.True(rt, second == nil || errors.As(second, &exists), "%v", second)
		others := len(c.fixture.Stripe.ChargesByOrder(OrderID(c.request.AccountID, c.second.Key).String()))
		require.Equal(rt, 1, charges+others, "one of the two purchases, whose card is good, is charged")
		require.Equal(rt, others == 1, c.final(rt, c.second.Key).Status == http.StatusCreated)
	}
	require.Less(rt, charges, 2)
	require.Equal(rt, charges == 1, final.Status == http.StatusCreated)
	require.True(rt, !unclaimed || charges == 1, "an order was called paid, and is not charged")
	text := Outcome(idempotency.Result{Response: final}, err)
	for _, key := range c.cancels {
		switch response := c.final(rt, key); response.Status {
		case http.StatusOK:
			require.Zero(rt, charges, "a 200 of a cancel means that no charge exists or ever will")
			text = "200 " + text
		case http.StatusUnprocessableEntity:
			require.Equal(rt, 1, charges)
		}
	}
	return cmp.Or(text, "none")
}

func hasOrder(f *Fixture, id string) bool {
	return f.Count("SELECT count(*) FROM orders WHERE id::text = $1", id) > 0
}

// killer ends all runs of a process before one of their calls. Calls that they have sent still arrive.
type killer struct {
	fixture *Fixture

	mu    sync.Mutex
	keys  []idempotency.Key
	calls int // until the kill, if positive
}

var errKilled = errors.New("killed")

func recoverKilled() {
	if cause := recover(); cause != nil && cause != errKilled { //nolint:errorlint // it is the value
		panic(cause)
	}
}

func (k *killer) arm(keys []idempotency.Key, calls int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.calls = keys, calls
}

func (k *killer) disarm() { k.arm(nil, 0) }

func (k *killer) call() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.calls--; k.calls != 0 {
		return
	}
	// These leases are never released, and no run can record anything.
	k.fixture.Exec("UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE idempotency_key = ANY($1) AND locked_at IS NOT NULL", k.keys)
	panic(errKilled)
}
