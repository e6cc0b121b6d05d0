package orders_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

func cancelRequest(account, order uuid.UUID, key idempotency.Key) idempotency.Request {
	return idempotency.Request{
		AccountID: account, Key: key, Method: http.MethodPost, Path: "/v1/orders/" + order.String() + "/cancel", Params: []byte("{}"),
	}
}

func (f *fixture) cancelKey() idempotency.Key { return f.key + "-cancel" }

func (f *fixture) cancel(key idempotency.Key) (idempotency.Result, error) {
	f.t.Helper()
	return f.Cancel(f.t.Context(), cancelRequest(f.Account, orderID(f.Account, f.key), key))
}

func cancelOrder(want string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.sentKey = f.cancelKey()
		f.send = func(f *fixture) (idempotency.Result, error) { return f.cancel(f.cancelKey()) }
		f.expect(want, f.send)
	}
}

func expectFailure(code string) step {
	return func(f *fixture) { require.Equal(f.t, code, f.getOrder().Failure.Code) }
}

const (
	notCancelable = "422 order-not-cancelable"
	notBegun      = notCancelable + ", and the key is unused"
)

// A cancel and its retry, by the client or by the completer (R29).
func TestCancel_outcomes(t *testing.T) {
	t.Parallel()
	canceled := expectFailure("canceled")
	table := scenarios{
		"no intent yet":             {stopBefore(createIntent), cancelOrder("200"), canceled, expectIntents("canceled")},
		"unconfirmed":               {stopBefore(confirm), cancelOrder("200"), canceled},
		"requires action":           {challenge, cancelOrder("200"), canceled},
		"declined before":           {payWith(declinedCard), create("402 card_declined generic_decline"), cancelOrder("200"), expectFailure("card_declined")},
		"not approved":              {challenge, failChallenge, cancelOrder("200"), expectFailure("payment_intent_authentication_failure")},
		"cancelled at the provider": {stopBefore(confirm), cancelAtProvider, cancelOrder("200"), canceled, expectIntents("canceled")},
		"closed by an operator":     {challenge, resolve("422 canceled"), cancelOrder("200"), expectFailure("canceled")},
		"charged, and the response lost": {
			loseResponse(confirm, getIntent), create("503 outcome unknown, 1s"), cancelOrder(notCancelable), expectCharges(1),
		},
		"charged before our cancel arrives":  {stopBefore(confirm), before(cancel, confirmAtProvider), cancelOrder(notCancelable), expectCharges(1)},
		"approved before our cancel arrives": {challenge, before(cancel, approve), cancelOrder(notCancelable), expectCharges(1)},
		"processing, then succeeded":         {inProcess, cancelOrder("503 outcome unknown, 30s"), paymentSucceeds, retry(notCancelable), expectCharges(1)},
		"processing, then failed":            {inProcess, cancelOrder("503 outcome unknown, 30s"), paymentFails, retry("200"), expectFailure("card_declined")},
		"the order's key is held": {
			stopBefore(confirm), func(f *fixture) { f.setLease(leaseDuration / 2) }, cancelOrder("503 outcome unknown, 1s"), expectCalls(""),
			func(f *fixture) { f.setLease(2 * leaseDuration) }, retry("200"), canceled,
		},
		"the charge window is over": {challenge, old, cancelOrder("200"), canceled},
		"the order's key is of a newer version": {
			challenge, setPoint("fraud_checked"), cancelOrder("503 outcome unknown, 1s"),
			setPoint("charge_created"), retry("200"), canceled,
		},
		"stored 500 before the effect": {challenge, faultOnce(stripetest.ErrorBefore, cancel), cancelOrder("200"), canceled},
	}
	for _, call := range []string{getIntent, cancel} {
		for kind, want := range map[stripetest.Fault]string{
			stripetest.CloseBefore: "503 outcome unknown, 1s",
			stripetest.CloseAfter:  "503 outcome unknown, 1s",
			stripetest.RateLimit:   "503 outcome unknown, 2s",
			stripetest.Unavailable: "503 outcome unknown, 2s",
		} {
			table[string(kind)+" "+call] = []step{challenge, fault(kind, call), cancelOrder(want), retry("200"), canceled}
		}
	}
	shared := newFixture(t, options{}, create("201"))
	for name, steps := range table {
		t.Run(name, func(t *testing.T) {
			for _, byCompleter := range []bool{false, true} {
				f := shared.withNewKey(t)
				f.byCompleter = byCompleter
				f.run(steps)
				f.checkResponse()
				if !f.retried {
					break
				}
			}
		})
	}
	checkInvariants(t, shared)
}

func setPoint(point string) step {
	return func(f *fixture) {
		f.exec("UPDATE idempotency_keys SET recovery_point = $2 WHERE id = $1", idempotency.KeyID(f.Account, f.key), point)
	}
}

// The response does not depend on the order's key.
func TestCancel_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, create("201"))
	failed := f.withNewKey(t)
	failed.do(payWith(declinedCard), create("402 card_declined generic_decline"))
	require.Equal(t, 2, idempotencytest.Reap(t, f.Pool))
	before := f.snapshot()
	f.do(cancelOrder(notBegun))
	require.Equal(t, before, f.snapshot(), "a rejected cancel changes nothing")
	failed.do(cancelOrder("200"), expectFailure("card_declined"))
}

// A run that has read the order before the cancel, or before an operator's mark, sends at most the call that is in flight (R29).
func TestCancel_inFlight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		held          string
		card          string
		fault         step
		order, cancel string
		calls         string
	}{
		"create":             {createIntent, visa, nil, "422 canceled", "200", "create 200, get 200, cancel 200"},
		"confirm":            {confirm, visa, nil, "201", notCancelable, "create 200, confirm 200"},
		"confirm, declined":  {confirm, declinedCard, nil, "402 card_declined generic_decline", "200", "create 200, confirm 402"},
		"confirm, challenge": {confirm, challengeCard, nil, "422 canceled", "200", "create 200, confirm 200, get 200, cancel 200"},
		"read after a stored 500": {
			getIntent, visa, faultOnce(stripetest.ErrorBefore, confirm), "422 canceled", "200", "create 200, confirm 500, get 200 ×2, cancel-2 200",
		},
	} {
		run := func(t *testing.T, by string, mark step) {
			t.Helper()
			t.Parallel()
			f := newFixture(t, options{connections: 4, concurrent: true})
			if test.fault != nil {
				f.do(test.fault)
			}
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: test.held})
			var outcome string
			var running sync.WaitGroup
			running.Go(func() { outcome = outcomeOf(f.create(test.card)) })
			<-held.Reached()
			canceling := f.withKey(t, f.key)
			canceling.do(mark)
			held.Release()
			running.Wait()
			require.Equal(t, test.order, outcome)
			f.do(expectCalls(test.calls))
			if by == "client" {
				canceling.do(retry(test.cancel))
			}
			f.checkFinal()
		}
		t.Run(name, func(t *testing.T) { run(t, "client", cancelOrder("503 outcome unknown, 1s")) })
		t.Run(name+", by an operator", func(t *testing.T) { run(t, "operator", resolve("409 in progress")) })
	}
}

// If the result of transaction 2 is lost, the run reads the order again before it confirms.
func TestCancel_unknownCommit(t *testing.T) {
	t.Parallel()
	const mark = "UPDATE orders SET cancel_requested_at = now()"
	wire := &idempotencytest.Wire{}
	var lost, marked bool
	f := newFixture(t, options{configure: func(config *pgxpool.Config) {
		wire.Configure(config)
		config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			if !lost || marked || !wire.Struck() {
				return true, nil
			}
			marked = true
			_, err := conn.Exec(ctx, mark)
			return true, err
		}
	}})
	lost = true
	wire.Strike(2, idempotencytest.CutAfter)
	f.do(create("database unavailable"), create("422 canceled"))
	require.True(t, marked)
	f.checkFinal()

	f = newFixture(t, options{}, before(confirm, func(f *fixture) { f.exec(mark) }), create("201"))
	f.checkFinal()
}

// The errors of the order's run neither end nor park the key of the cancel, and the lease of the cancel
// ends that run.
func TestCancel_innerErrors(t *testing.T) {
	t.Parallel()
	const unavailable = "database unavailable" // because the time of the step is over
	for name, test := range map[string]struct {
		want   string
		inject func(f *fixture)
		lease  time.Duration
	}{
		"action required": {"503 outcome unknown, 1s", func(f *fixture) {
			f.exec("UPDATE orders SET cancel_requested_at = NULL")
		}, 0},
		"lease lost": {"503 outcome unknown, 1s", func(f *fixture) {
			f.do(before(cancel, func(f *fixture) {
				f.exec("UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE operation = 'create_order'")
			}))
		}, 0},
		"panic": {"panic", func(f *fixture) {
			f.do(before(cancel, func(*fixture) { panic("of the test") }))
		}, 0},
		"time is over": {unavailable, func(f *fixture) {
			f.inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: getIntent, Times: stripetest.Always})
		}, 2 * time.Second}, // not over before the call
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{lease: test.lease}, challenge)
			request := cancelRequest(f.Account, orderID(f.Account, f.key), f.cancelKey())
			request.OnClaim = func() { test.inject(f) }
			first := func(f *fixture) (idempotency.Result, error) { return f.Cancel(t.Context(), request) }
			if test.want == "panic" {
				require.Panics(t, func() { _, _ = first(f) })
			} else {
				f.expect(test.want, first)
			}
			require.Equal(t, 1, f.count(`
SELECT count(*)
  FROM idempotency_keys
 WHERE operation = 'cancel_order'
   AND locked_at IS NULL
   AND action_required_at IS NULL
   AND last_error IS NOT NULL`))
			if name != "lease lost" {
				require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys WHERE locked_at IS NOT NULL"), "the order's key is released")
			}
			f.exec("UPDATE idempotency_keys SET locked_at = locked_at - $1::interval", 2*leaseDuration)
			f.exec("UPDATE orders SET cancel_requested_at = now()")
			f.transport.intercept(nil)
			f.do(cancelOrder("200"), expectFailure("canceled"))
			f.checkFinal()
		})
	}
}

// An order without an intent is cancelled, and a failover loses that. The cancelled intent, which the cancel created,
// keeps the retry from charging the card.
func TestCancel_lost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, makeUnavailable(createIntent), create("503 unavailable, 2s"))
	f.do(respond(createIntent, 401, `"type":"invalid_request_error"`), cancelOrder("503 outcome unknown, 1m0s"), retry("200"), expectFailure("canceled"))
	f.exec("DELETE FROM idempotency_keys WHERE operation = 'cancel_order'")
	f.do(loseRows, create("422 payment_intent_canceled"), expectCharges(0))
	f.checkFinal()
}

// The reference is free when the payment is impossible, and not before.
func TestCancel_reference(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{unchecked: true})
	first, second := f.key, idempotency.Key("the-second-key-of-it")
	purchase := func(key idempotency.Key, card string) string { return outcomeOf(f.purchase(key, card, "basket 17")) }
	require.Equal(t, "202 action required", purchase(first, challengeCard))
	require.Equal(t, "422 order-exists, and the key is unused", purchase(second, visa))
	f.do(makeUnavailable(cancel), cancelOrder("503 outcome unknown, 2s"))
	require.Equal(t, "422 order-exists, and the key is unused", purchase(second, visa), "the customer can still pay")
	f.do(retry("200"))
	require.Equal(t, "201", purchase(second, visa))
	require.Equal(t, "422 canceled", purchase(first, challengeCard))
	customerCannotPay(f)
	require.Len(t, f.Stripe.Charges(), 1)
}

// From the request of the cancel on, no client gets the secret with which the customer can pay.
func TestCancel_noSecretAfterwards(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, challenge)
	f.do(makeUnavailable(cancel), cancelOrder("503 outcome unknown, 2s"))
	for _, want := range []string{"503 outcome unknown, 2s", "422 canceled"} {
		_, err := f.readStatus(t.Context())
		require.NotErrorIs(t, err, idempotency.ErrActionRequired)
		if want != "422 canceled" {
			f.do(makeUnavailable(cancel))
		}
		f.do(create(want))
	}
	f.do(cancelOrder("200"))
	f.checkFinal()
}

func TestCost_cancel(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := newFixture(t, options{configure: wire.Configure})
	for range 2 { // the first time prepares the statements
		f = f.withNewKey(t)
		f.do(challenge)
		wire.Reset()
		f.do(cancelOrder("200"))
	}
	require.Equal(t, 11, wire.RoundTrips(), "round trips")
	require.Equal(t, 3, wire.Commits(), "commits")
}
