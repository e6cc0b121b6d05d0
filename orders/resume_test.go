package orders_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

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
				f := shared.withNewKey(t)
				f.byCompleter = byCompleter
				f.do(killDuring(test.call))
				f.setLease(leaseDuration - 10*time.Second)
				f.do(retry("409 in progress"), expectCalls(""))

				f.setLease(leaseDuration + time.Second)
				f.do(retry("201"), expectCalls(test.calls), expectCharges(1))
				require.Equal(t, test.point, f.result.From)
				f.checkFinal()
			})
		}
	}
}

func TestResume_orderMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, stopBefore(createIntent))
	f.exec("DELETE FROM orders")
	_, err := f.create(visa)
	require.EqualError(t, err, fmt.Sprintf("the order of key %s is missing", idempotency.KeyID(f.Account, f.key)))
}

// Stored responses and unfinished orders do not depend on validation rules (R4, R19).
func TestCreate_rulesChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	req := request(t, f.Account, f.key, visa)
	old := []byte(`{"cents":"all of them"}`)

	t.Run("unfinished key", func(t *testing.T) {
		f := f.withKey(t, f.key)
		f.do(stopBefore(createIntent))
		f.exec("DELETE FROM idempotency_keys")
		req.Params = old
		idempotencytest.PutKey(t, f.Pool, req, "create_order", "order_created")
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

// Ids are derived, so the retry finds the same payment (R5).
func TestCreate_rowsLostInFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card    string
		calls   string
		outcome string
	}{
		"paid order":         {visa, "create 200, get 200", "201"},
		"declined order":     {declinedCard, "create 200, get 200, cancel 200", "402 card_declined generic_decline"},
		"payment in process": {stripetest.ProcessingCard, "create 200, get 200", "503 outcome unknown, 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, payWith(test.card), create(test.outcome))
			before, intents := f.getOrder(), f.intents()
			f.do(loseRows, retry(test.outcome), expectCalls(test.calls))
			require.Equal(t, before.ID, f.getOrder().ID)
			require.Equal(t, before.PaymentIntentID, f.getOrder().PaymentIntentID)
			require.Equal(t, intents[0].ID, f.intents()[0].ID)
			require.Len(t, f.intents(), 1)
			if test.card == stripetest.ProcessingCard {
				f.do(paymentSucceeds, retry("201"))
			}
			f.checkFinal()
		})
	}
}
