package orders_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	. "example.com/orders-api/orders/orderstest"
)

func TestResume_killed(t *testing.T) {
	t.Parallel()
	shared := NewFixture(t, Setup{})
	for name, test := range map[string]struct {
		call  string
		point idempotency.RecoveryPoint
		calls string
	}{
		"create":  {CreateIntent, "order_created", "search 200, create 200, get 200, confirm 200"},
		"confirm": {Confirm, "charge_created", "get 200"},
	} {
		for _, byCompleter := range []bool{false, true} {
			t.Run(fmt.Sprintf("during %s, resumed by completer %t", name, byCompleter), func(t *testing.T) {
				f := shared.WithNewKey(t)
				f.ByCompleter = byCompleter
				f.Do(KillDuring(test.call))
				f.SetLease(LeaseDuration - 10*time.Second)
				f.Do(Retry("409 in progress"), ExpectCalls(""))

				f.SetLease(LeaseDuration + time.Second)
				f.Do(Retry("201"), ExpectCalls(test.calls), ExpectCharges(1))
				require.Equal(t, test.point, f.Result.From)
				f.CheckFinal()
			})
		}
	}
}

func TestResume_orderMissing(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, StopBefore(CreateIntent))
	f.Exec("DELETE FROM orders")
	_, err := f.CreateOrder(Visa)
	require.EqualError(t, err, fmt.Sprintf("the order of key %s is missing", idempotency.KeyID(f.Account, f.Key)))
}

// Stored responses and unfinished orders do not depend on validation rules (R4, R19).
func TestCreate_rulesChanged(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	req := OrderRequest(t, f.Account, f.Key, Visa)
	old := []byte(`{"cents":"all of them"}`)

	t.Run("unfinished key", func(t *testing.T) {
		f := f.WithKey(t, f.Key)
		f.Do(StopBefore(CreateIntent))
		f.Exec("DELETE FROM idempotency_keys")
		req.Params = old
		idempotencytest.PutKey(t, f.Pool, req, "create_order", "order_created")
		require.Equal(t, "201", Outcome(f.Send(req)))
		CheckInvariants(t, f)
	})
	t.Run("finished key", func(t *testing.T) {
		f := f.WithKey(t, f.Key)
		result, err := f.Send(req)
		require.NoError(t, err)
		require.True(t, result.Replayed)
		require.Equal(t, "201", Outcome(result, nil))
	})
	t.Run("new key", func(t *testing.T) {
		f := f.WithKey(t, "a-new-key-with-an-old-request")
		req.Key = f.Key
		require.Equal(t, "422 invalid", Outcome(f.Send(req)))
		CheckInvariants(t, f)
	})
}

func TestReaper_keepsTheOrder(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, Create("201"))
	abandoned := f.WithKey(t, "abandoned-long-ago")
	abandoned.Do(StopBefore(Confirm))
	abandoned.Backdate(365 * 24 * time.Hour)
	order, audited := f.GetOrder(), history(f)

	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	require.Equal(t, order, f.GetOrder())
	require.Equal(t, audited, history(f))
	require.Equal(t, 1, f.Count("SELECT count(*) FROM staged_jobs"), "the receipt is still staged")
	abandoned.Do(Retry("422 charge_window_over"))
	CheckInvariants(t, f)
}
