package orders_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

// The run's process was killed. Another run takes over after the lease has expired.
func TestResume_killed(t *testing.T) {
	t.Parallel()
	shared := newFixture(t, options{})
	for name, test := range map[string]struct {
		call  string
		point idempotency.RecoveryPoint
		calls string
	}{
		"create":  {createIntent, "order_created", "search 200, create 200, get 200, confirm 200"},
		"confirm": {confirm, "charge_created", "get 200"},
	} {
		for _, byCompleter := range []bool{false, true} {
			t.Run(fmt.Sprintf("during %s, resumed by completer %t", name, byCompleter), func(t *testing.T) {
				f := shared.withKey(t, idempotency.Key(fmt.Sprintf("killed-during-%s-%t", name, byCompleter)))
				f.byCompleter = byCompleter
				f.do(killDuring(test.call))
				f.setLease(lockTimeout - 10*time.Second)
				f.do(retry("409 in progress"), expectCalls(""))

				f.setLease(lockTimeout + time.Second)
				f.do(retry("201"), expectCalls(test.calls), expectCharges(1))
				require.Equal(t, test.point, f.result.From)
				f.checkFinal()
			})
		}
	}
}

// A key without its order is an internal error, not a 404 for the client.
func TestResume_orderMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, stopBefore(createIntent))
	f.exec("DELETE FROM orders")
	_, err := f.create(visa)
	require.EqualError(t, err, fmt.Sprintf("the order of key %s is missing", idempotency.KeyID(f.account, f.key)))
}

func TestResume_delayedCall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call    string
		card    string
		first   string
		act     step
		outcome string
	}{
		"create, order declined":   {createIntent, declinedCard, "503 unavailable, 1s", nil, "402 card_declined generic_decline"},
		"confirm, order paid":      {confirm, visa, "503 outcome unknown, 1s", nil, "201"},
		"confirm, order cancelled": {confirm, visa, "503 outcome unknown, 1s", cancelAtProvider, "422 payment_intent_canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: test.call})
			f.inject(stripetest.Rule{Fault: stripetest.CloseBefore, Endpoint: test.call, After: 1, Times: stripetest.Always})
			f.do(interceptFirst(test.call, func(_ *fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
				return hangUp(req, next, held)
			}))
			f.do(payWith(test.card), create(test.first))
			require.Equal(t, 1, held.Triggered())
			if test.act != nil {
				test.act(f)
			}
			f.do(retry(test.outcome))
			f.checkFinal()

			held.Release()
			require.Eventually(t, f.heldCallAnswered, 10*time.Second, time.Millisecond)
			f.checkFinal()
			require.Len(t, f.intents(), 1)
		})
	}
}

func (f *fixture) heldCallAnswered() bool {
	for _, r := range f.stripe.Requests() {
		if slices.Contains(r.Faults, stripetest.HoldArrival) {
			return r.Status != 0
		}
	}
	return false
}

// Stored responses and unfinished orders do not depend on validation rules (R4, R19).
func TestCreate_rulesChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	req := request(t, f.account, f.key, visa)
	old := []byte(`{"cents":"all of them"}`)

	t.Run("unfinished key", func(t *testing.T) {
		f := f.withKey(t, f.key)
		f.do(stopBefore(createIntent))
		f.exec("DELETE FROM idempotency_keys")
		req.Params = old
		idempotencytest.PutKey(t, f.pool, req.Request, "create_order", idempotencytest.State{Point: "order_created"})
		require.Equal(t, "201", outcomeOf(f.sendRequest(req)))
		checkInvariants(t, f)
	})
	t.Run("finished key", func(t *testing.T) {
		f := f.withKey(t, f.key)
		result, err := f.sendRequest(req)
		require.NoError(t, err)
		require.True(t, result.Replayed)
		require.Equal(t, "201", outcomeOf(result, nil))
	})
	t.Run("new key", func(t *testing.T) {
		f := f.withKey(t, "a-new-key-with-an-old-request")
		req.Key = f.key
		require.Equal(t, "422 invalid", outcomeOf(f.sendRequest(req)))
		checkInvariants(t, f)
	})
}

// A failover may lose the last commits. Ids are derived, so the retry finds the same
// payment (R5).
func TestCreate_rowsLostInFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card    string
		calls   string
		outcome string
	}{
		"paid order":         {visa, "create 200, confirm 200", "201"},
		"declined order":     {declinedCard, "create 200, confirm 402", "402 card_declined generic_decline"},
		"payment in process": {stripetest.ProcessingCard, "create 200, confirm 200", "503 outcome unknown, 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, payWith(test.card), create(test.outcome))
			before, intents := f.getOrder(), f.intents()
			f.do(loseRows, retry(test.outcome), expectCalls(test.calls))
			require.Equal(t, before.ID, f.getOrder().ID)
			require.Equal(t, before.PaymentIntentID, f.getOrder().PaymentIntentID)
			require.Equal(t, intents, f.intents())
			if test.card == stripetest.ProcessingCard {
				f.do(paymentSucceeds, retry("201"))
			}
			f.checkFinal()
		})
	}
}
