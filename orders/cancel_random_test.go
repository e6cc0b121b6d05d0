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
	f := newFixture(t, options{connections: 4, concurrent: true})
	kills.fixture = f
	var closed sync.Map   // paths of the confirms of orders whose cancel was answered with 200
	var late atomic.Int64 // confirms that were sent and executed after that
	f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
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
		c := newCancelCase(t, rt, f, &closed)
		defer c.end()
		defer kills.disarm()
		actions := c.actions()
		if !c.alone {
			actions["cancel"] = func(rt *rapid.T) { c.start(c.cancel(c.drawCancel(rt))) }
			actions["completer of the cancel"] = func(rt *rapid.T) { c.start(c.resumeKey(c.drawCancel(rt))) }
			actions["second key"] = func(*rapid.T) { c.start(c.createSecond) }
			actions["operator"] = c.resolve
		}
		actions["kill"] = func(rt *rapid.T) { kills.arm(c.keys, rapid.IntRange(1, 3).Draw(rt, "calls")) }
		rt.Repeat(actions)
		kills.disarm()
		results[c.finish(rt)]++
		require.Zero(rt, late.Load(), "confirms after a 200")
	})
	t.Log(results)
	checkInvariants(t, f)
}

type cancelCase struct {
	*randomCase

	alone   bool                // without cancels, an operator and the second key
	second  idempotency.Request // another purchase with the same reference
	cancels []idempotency.Key
	closed  *sync.Map
}

func newCancelCase(t *testing.T, rt *rapid.T, f *fixture, closed *sync.Map) *cancelCase {
	t.Helper()
	reference := fmt.Sprintf(`,"reference":%q`, uuid.NewString())
	c := &cancelCase{randomCase: newRandomCase(t, rt, f, reference), closed: closed}
	key := c.request.Key
	c.alone = rapid.IntRange(0, 3).Draw(rt, "alone") == 0
	c.second = request(t, f.Account, key+"-second", visa, reference)
	c.cancels = []idempotency.Key{key + "-cancel-1", key + "-cancel-2"}
	c.keys = append(c.cancels, key, c.second.Key)
	return c
}

func (c *cancelCase) drawCancel(rt *rapid.T) idempotency.Key {
	return rapid.SampledFrom(c.cancels).Draw(rt, "cancel")
}

func (c *cancelCase) cancel(key idempotency.Key) func() (idempotency.Result, error) {
	return func() (idempotency.Result, error) {
		return c.closes(c.fixture.Cancel(context.Background(), cancelRequest(c.request.AccountID, uuid.MustParse(c.id), key)))
	}
}

func (c *cancelCase) resumeKey(key idempotency.Key) func() (idempotency.Result, error) {
	return func() (idempotency.Result, error) {
		return c.closes(c.fixture.Engine.Resume(context.Background(), c.request.AccountID, idempotency.KeyID(c.request.AccountID, key)))
	}
}

// closes notes the confirm that must not be executed any more.
func (c *cancelCase) closes(result idempotency.Result, err error) (idempotency.Result, error) {
	var order orders.Order
	if result.Response.Status == http.StatusOK && json.Unmarshal(result.Response.Body, &order) == nil && order.PaymentIntentID != nil {
		c.closed.Store("/v1/payment_intents/"+*order.PaymentIntentID+"/confirm", true)
	}
	return result, err
}

func (c *cancelCase) createSecond() (idempotency.Result, error) {
	return c.fixture.Create(context.Background(), c.second)
}

func (c *cancelCase) resolve(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "operator") > 0 {
		rt.Skip("an operator acts in few cases")
	}
	c.start(func() (idempotency.Result, error) {
		return c.fixture.Resolve(context.Background(), c.request.AccountID, idempotency.KeyID(c.request.AccountID, c.request.Key), action)
	})
}

func (c *cancelCase) finish(rt *rapid.T) string {
	c.end()
	if c.alone {
		c.cancels = nil
	}
	var paid *httpjson.Rejection
	unclaimed := false // a cancel came before the order, or after its payment
	endCancels := func() {
		for _, key := range c.cancels {
			if err := c.runUntilFinal(rt, c.resumeKey(key), c.cancel(key)); err != nil {
				unclaimed = true
				require.True(rt, errors.As(err, &paid) && paid.Slug == "order-not-cancelable", "%v", err)
			}
		}
	}
	exists := &httpjson.Rejection{}
	cancelsFirst := rapid.Bool().Draw(rt, "cancels first") && c.fixture.hasOrder(c.id)
	if cancelsFirst {
		endCancels()
	}
	err := c.runUntilFinal(rt, c.resume, c.create)
	require.True(rt, err == nil || errors.As(err, &exists) && exists.Slug == "order-exists", "%v", err)
	if !cancelsFirst && err == nil {
		endCancels()
	}
	c.payOnceMore()
	charges, final := len(c.fixture.Stripe.ChargesByOrder(c.id)), c.final(rt, c.request.Key)
	if !c.alone {
		second := c.runUntilFinal(rt, c.resumeKey(c.second.Key), c.createSecond)
		require.True(rt, second == nil || errors.As(second, &exists), "%v", second)
		others := len(c.fixture.Stripe.ChargesByOrder(orderID(c.request.AccountID, c.second.Key).String()))
		require.Equal(rt, 1, charges+others, "one of the two purchases, whose card is good, is charged")
		require.Equal(rt, others == 1, c.final(rt, c.second.Key).Status == http.StatusCreated)
	}
	require.Less(rt, charges, 2)
	require.Equal(rt, charges == 1, final.Status == http.StatusCreated)
	require.True(rt, !unclaimed || charges == 1, "an order was called paid, and is not charged")
	text := outcomeOf(idempotency.Result{Response: final}, err)
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

func (f *fixture) hasOrder(id string) bool {
	return f.count("SELECT count(*) FROM orders WHERE id::text = $1", id) > 0
}

// killer ends all runs of a process before one of their calls. Calls that they have sent still arrive.
type killer struct {
	fixture *fixture

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
	k.fixture.exec("UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE idempotency_key = ANY($1) AND locked_at IS NOT NULL", k.keys)
	panic(errKilled)
}
