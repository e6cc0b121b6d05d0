package orders_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
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

const (
	retention = 72 * time.Hour
	grace     = 5 * time.Minute
)

func (f *fixture) ageLastRun(age time.Duration) {
	f.t.Helper()
	f.exec("UPDATE idempotency_keys SET updated_at = updated_at - $1::interval", age)
	f.exec("UPDATE refunds SET provider_sent_at = provider_sent_at - $1::interval", age)
}

func (f *fixture) runCompleter() idempotency.CompleterResult {
	f.t.Helper()
	c := idempotency.NewCompleter(f.Engine,
		idempotency.CompleterConfig{Grace: grace, ActionTimeout: 23 * time.Hour, Batch: 100, Concurrency: 1})
	result, err := c.RunOnce(f.t.Context())
	require.NoError(f.t, err)
	return result
}

// The completer needs neither valid credentials of the client nor a valid request (R4).
func TestCompleter_noClient(t *testing.T) {
	t.Parallel()
	for point, endpoint := range map[string]string{"order_created": createIntent, "charge_created": confirm} {
		t.Run("from "+point, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, stopBefore(endpoint))
			f.exec(`
INSERT INTO api_keys (id, account_id, key_hash, prefix, revoked_at)
VALUES (gen_random_uuid(), $1, decode(repeat('00', 32), 'hex'), 'ok_revoked', now())`, f.Account)
			f.exec(`UPDATE idempotency_keys SET request_params = '{"cents":"all of them"}'`)
			f.ageLastRun(2 * grace)
			require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
			require.Equal(t, orders.StatusPaid, f.getOrder().Status)
			require.EqualValues(t, orderAmount, f.getOrder().Amount)
			require.Equal(t, 1, f.count("SELECT count(*) FROM audit_records WHERE action = 'order.paid'"))
			f.checkFinal()
		})
	}
}

func TestReaper_keepsTheOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, create("201"))
	abandoned := f.withKey(t, "abandoned-long-ago")
	abandoned.do(stopBefore(confirm))
	abandoned.backdate(365 * 24 * time.Hour)
	order, history := f.getOrder(), f.history()

	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	require.Equal(t, order, f.getOrder())
	require.Equal(t, history, f.history())
	require.Equal(t, 1, f.count("SELECT count(*) FROM staged_jobs"), "the receipt is still staged")
	abandoned.do(retry("422 charge_window_over"))
	checkInvariants(t, f)
}
