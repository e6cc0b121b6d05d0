package orders_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// The process of the run has died: the first request after the lease takes over.
func TestResume_everyRecoveryPoint(t *testing.T) {
	t.Parallel()
	points := []struct {
		point idempotency.RecoveryPoint
		leave func(f *fixture)
		calls string
	}{
		{
			point: "order_created",
			leave: func(f *fixture) { f.interrupt(createEndpoint, visa) },
			calls: "create 200, get 200, confirm 200",
		},
		{
			point: "charge_created",
			leave: func(f *fixture) { f.interrupt(confirmEndpoint, visa) },
			calls: "get 200, confirm 200",
		},
	}
	f := newFixture(t, options{})
	for i, p := range points {
		for name, resume := range map[string]func(*fixture, string) (idempotency.Result, error){"Create": (*fixture).create, "Resume": (*fixture).completerRun} {
			t.Run(fmt.Sprintf("%s by %s", p.point, name), func(t *testing.T) {
				f := f.withKey(t, idempotency.Key(fmt.Sprintf("interrupted-key-of-%s-%d", name, i)))
				p.leave(f)
				f.transport.reset()

				f.setLease(lockTimeout - 10*time.Second)
				require.Equal(t, "in progress", outcomeOf(resume(f, visa)))
				require.Empty(t, f.transport.calls())

				f.setLease(lockTimeout + time.Second)
				result, err := resume(f, visa)
				require.Equal(t, "201", outcomeOf(result, err))
				require.Equal(t, p.point, result.From)
				require.False(t, result.Replayed)
				require.Equal(t, p.calls, f.transport.calls())
				f.checkFinal()
			})
		}
	}
}

// The completer's audit records have no client address.
func TestResume_noClientAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(confirmEndpoint, visa)
	require.Equal(t, "201", outcomeOf(f.resume()))
	rows, err := f.pool.Query(t.Context(), "SELECT action || ' ' || coalesce(host(request_ip), 'nobody') FROM audit_records ORDER BY created_at")
	require.NoError(t, err)
	require.Equal(t, []string{"order.created 203.0.113.7", "order.charge_created 203.0.113.7", "order.paid nobody"}, collectStrings(t, rows))
}

func TestResume_unknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	_, err := f.service.Resume(t.Context(), f.account, uuid.New())
	require.ErrorIs(t, err, idempotency.ErrNotFound)

	f.interrupt(createEndpoint, visa)
	f.exec("UPDATE idempotency_keys SET operation = 'of_a_newer_version'")
	_, err = f.resume()
	require.ErrorIs(t, err, idempotency.ErrNewerVersion)

	f.exec("UPDATE idempotency_keys SET operation = 'create_order', recovery_point = 'of_a_newer_version'")
	_, err = f.resume()
	require.ErrorIs(t, err, idempotency.ErrNewerVersion)
	require.Empty(t, f.transport.calls())
}

// A key without its order is an internal error, not a 404 for the client.
func TestResume_orderMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(createEndpoint, visa)
	f.exec("DELETE FROM orders")
	_, err := f.create(visa)
	require.EqualError(t, err, fmt.Sprintf("the order of key %s is missing", idempotency.KeyID(f.account, f.key)))
}

// A request to the provider arrives after the order is finished.
func TestResume_delayedRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		endpoint string
		card     string
		first    string
		before   func(*fixture)
		want     string
	}{
		"create, order paid": {
			endpoint: createEndpoint, card: visa, first: "unavailable 1s", want: "201",
		},
		"create, order declined": {
			endpoint: createEndpoint, card: "pm_card_chargeDeclinedExpiredCard", first: "unavailable 1s", want: "402 expired_card expired_card",
		},
		"confirm, order paid": {
			endpoint: confirmEndpoint, card: visa, first: "unknown 1s", want: "201",
		},
		"confirm, order declined": {
			endpoint: confirmEndpoint, card: "pm_card_radarBlock", first: "unknown 1s", want: "402 card_declined fraudulent",
		},
		"confirm, order cancelled": {
			endpoint: confirmEndpoint, card: visa, first: "unknown 1s", before: cancelAtProvider, want: "422 payment_intent_canceled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{stepTimeout: 4 * time.Second})
			held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: test.endpoint})
			resent := f.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseBefore, Endpoint: test.endpoint, After: 1, Times: stripetest.Always})
			require.Equal(t, test.first, outcomeOf(f.create(test.card)))
			require.Equal(t, 1, held.Triggered())
			resent.Release()
			if test.before != nil {
				test.before(f)
			}
			require.Equal(t, test.want, outcomeOf(f.create(test.card)))
			f.checkFinal()

			held.Release()
			require.Eventually(t, f.heldRequestAnswered, 10*time.Second, time.Millisecond)
			f.checkFinal()
			require.Len(t, f.intents(), 1)
		})
	}
}

// heldRequestAnswered reports whether the provider has responded to the request that
// was held, although its client has gone.
func (f *fixture) heldRequestAnswered() bool {
	for _, r := range f.stripe.Requests() {
		if slices.Contains(r.Faults, stripetest.HoldArrival) {
			return r.Status != 0
		}
	}
	return false
}

// Stored responses and unfinished orders outlive stricter validation rules (R4, R19).
func TestCreate_rulesChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	req := request(t, f.account, f.key, visa)
	old := []byte(`{"cents":"all of them"}`)

	t.Run("unfinished key", func(t *testing.T) {
		f := f.withKey(t, f.key)
		f.interrupt(createEndpoint, visa)
		f.exec("UPDATE idempotency_keys SET request_params = $1, params_hash = $2", old, fingerprintOf(t, f, req, old))
		req.Params = old
		require.Equal(t, "201", outcomeOf(f.send(req)))
		checkInvariants(t, f)
	})
	t.Run("finished key", func(t *testing.T) {
		f := f.withKey(t, f.key)
		result, err := f.send(req)
		require.NoError(t, err)
		require.True(t, result.Replayed)
		require.Equal(t, "201", outcomeOf(result, nil))
	})
	t.Run("new key", func(t *testing.T) {
		f := f.withKey(t, "a-new-key-with-an-old-request")
		req.Key = f.key
		require.Equal(t, "invalid", outcomeOf(f.send(req)))
		checkInvariants(t, f)
	})
}

// fingerprintOf returns the fingerprint that the engine stores for the request with
// other parameters.
func fingerprintOf(t *testing.T, f *fixture, req orders.Request, params []byte) []byte {
	t.Helper()
	id := idempotencytest.PutKey(t, f.pool, idempotency.Request{
		AccountID: req.AccountID,
		Key:       "a-key-for-its-fingerprint",
		Method:    req.Method,
		Path:      req.Path,
		Params:    params,
	}, "create_order", idempotencytest.State{})
	var hash []byte
	require.NoError(t, f.pool.QueryRow(t.Context(), "DELETE FROM idempotency_keys WHERE id = $1 RETURNING params_hash", id).Scan(&hash))
	return hash
}

// A failover may lose the last commits. Ids are derived, so the retry finds the same
// payment (R5).
func TestCreate_rowsLostInFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card  string
		calls string
		want  string
	}{
		"paid order":         {visa, "create 200, confirm 200", "201"},
		"declined order":     {"pm_card_visa_chargeDeclinedLostCard", "create 200, confirm 402", "402 card_declined lost_card"},
		"payment in process": {"pm_card_standinProcessing", "create 200, confirm 200", "unknown 30s"},
		"refused order":      {"pm_nobody_knows", "create 400", "422 resource_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			require.Equal(t, test.want, outcomeOf(f.create(test.card)))
			before := f.getOrder()
			intents := f.intents()

			f.exec("DELETE FROM orders")
			f.exec("DELETE FROM idempotency_keys")
			f.exec("DELETE FROM staged_jobs")
			f.exec("DELETE FROM audit_records")
			f.responses.reset() // the response is lost as well
			f.transport.reset()

			require.Equal(t, test.want, outcomeOf(f.create(test.card)))
			require.Equal(t, test.calls, f.transport.calls())
			require.Equal(t, before.ID, f.getOrder().ID)
			require.Equal(t, before.PaymentIntentID, f.getOrder().PaymentIntentID)
			require.Equal(t, intents, f.intents())
			if test.want == "unknown 30s" {
				settlePayment(true)(f)
				require.Equal(t, "201", outcomeOf(f.create(test.card)))
			}
			f.checkFinal()
		})
	}
}
