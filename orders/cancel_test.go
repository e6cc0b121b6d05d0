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
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

func cancelRequest(account, order uuid.UUID, key idempotency.Key) idempotency.Request {
	return idempotency.Request{
		AccountID: account, Key: key, Method: http.MethodPost, Path: "/v1/orders/" + order.String() + "/cancel", Params: []byte("{}"),
	}
}

func cancelKey(f *Fixture) idempotency.Key { return f.Key + "-cancel" }

func sendCancel(f *Fixture) (idempotency.Result, error) {
	f.T.Helper()
	return f.Cancel(f.T.Context(), cancelRequest(f.Account, OrderID(f.Account, f.Key), cancelKey(f)))
}

func cancelOrder(want string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Request(want, cancelKey(f), sendCancel)
	}
}

func expectFailure(code string) Step {
	return func(f *Fixture) { require.Equal(f.T, code, f.GetOrder().Failure.Code) }
}

const (
	notCancelable = "422 order-not-cancelable"
	notBegun      = notCancelable + ", and the key is unused"
)

// A cancel and its retry, by the client or by the completer (R29).
func cancelOutcomes() scenarios {
	canceled := expectFailure("canceled")
	table := scenarios{
		"no intent yet":             {StopBefore(CreateIntent), cancelOrder("200"), canceled, expectIntents("canceled")},
		"unconfirmed":               {StopBefore(Confirm), cancelOrder("200"), canceled},
		"requires action":           {Challenge, cancelOrder("200"), canceled},
		"declined before":           {PayWith(DeclinedCard), Create("402 card_declined generic_decline"), cancelOrder("200"), expectFailure("card_declined")},
		"not approved":              {Challenge, FailChallenge, cancelOrder("200"), expectFailure("payment_intent_authentication_failure")},
		"cancelled at the provider": {StopBefore(Confirm), cancelAtProvider, cancelOrder("200"), canceled, expectIntents("canceled")},
		"closed by an operator":     {Challenge, resolve("422 canceled"), cancelOrder("200"), expectFailure("canceled")},
		"charged, and the response lost": {
			LoseResponse(Confirm, GetIntent), Create("503 outcome unknown, 1s"), cancelOrder(notCancelable), ExpectCharges(1),
		},
		"charged before our cancel arrives":  {StopBefore(Confirm), Before(Cancel, confirmAtProvider), cancelOrder(notCancelable), ExpectCharges(1)},
		"approved before our cancel arrives": {Challenge, Before(Cancel, Approve), cancelOrder(notCancelable), ExpectCharges(1)},
		"processing, then succeeded":         {InProcess, cancelOrder("503 outcome unknown, 30s"), PaymentSucceeds, Retry(notCancelable), ExpectCharges(1)},
		"processing, then failed":            {InProcess, cancelOrder("503 outcome unknown, 30s"), PaymentFails, Retry("200"), expectFailure("card_declined")},
		"the order's key is held": {
			StopBefore(Confirm), func(f *Fixture) { f.SetLease(LeaseDuration / 2) }, cancelOrder("503 outcome unknown, 1s"), ExpectCalls(""),
			func(f *Fixture) { f.SetLease(2 * LeaseDuration) }, Retry("200"), canceled,
		},
		"the charge window is over": {Challenge, func(f *Fixture) { f.Backdate(age) }, cancelOrder("200"), canceled},
		"the order's key is of a newer version": {
			Challenge, setPoint("fraud_checked"), cancelOrder("503 outcome unknown, 1s"),
			setPoint("charge_created"), Retry("200"), canceled,
		},
		"not answered, so no client gets the secret with which the customer can pay": {
			Challenge, MakeUnavailable(Cancel), cancelOrder("503 outcome unknown, 2s"),
			MakeUnavailable(Cancel), Create("503 outcome unknown, 2s"), Create("422 canceled"), cancelOrder("200"),
		},
		"stored 500 before the effect": {Challenge, FaultOnce(stripetest.ErrorBefore, Cancel), cancelOrder("200"), canceled},
	}
	for _, call := range []string{GetIntent, Cancel} {
		for kind, want := range map[stripetest.Fault]string{
			stripetest.CloseBefore: "503 outcome unknown, 1s",
			stripetest.CloseAfter:  "503 outcome unknown, 1s",
			stripetest.RateLimit:   "503 outcome unknown, 2s",
			stripetest.Unavailable: "503 outcome unknown, 2s",
		} {
			table[string(kind)+" "+call] = []Step{Challenge, Fault(kind, call), cancelOrder(want), Retry("200"), canceled}
		}
	}
	return table
}

func setPoint(point string) Step {
	return func(f *Fixture) {
		f.Exec("UPDATE idempotency_keys SET recovery_point = $2 WHERE id = $1", idempotency.KeyID(f.Account, f.Key), point)
	}
}

// The response does not depend on the order's key.
func TestCancel_reapedKey(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, Create("201"))
	failed := f.WithNewKey(t)
	failed.Do(PayWith(DeclinedCard), Create("402 card_declined generic_decline"))
	require.Equal(t, 2, idempotencytest.Reap(t, f.Pool))
	before := f.Snapshot()
	f.Do(cancelOrder(notBegun))
	require.Equal(t, before, f.Snapshot(), "a rejected cancel changes nothing")
	failed.Do(cancelOrder("200"), expectFailure("card_declined"))
}

// A run that has read the order before the cancel, or before an operator's mark, sends at most the call that is in flight (R29).
func TestCancel_inFlight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		held          string
		card          string
		fault         Step
		order, cancel string
		calls         string
	}{
		"create":             {CreateIntent, Visa, nil, "422 canceled", "200", "create 200, get 200, cancel 200"},
		"confirm":            {Confirm, Visa, nil, "201", notCancelable, "create 200, confirm 200"},
		"confirm, declined":  {Confirm, DeclinedCard, nil, "402 card_declined generic_decline", "200", "create 200, confirm 402"},
		"confirm, challenge": {Confirm, ChallengeCard, nil, "422 canceled", "200", "create 200, confirm 200, get 200, cancel 200"},
		"read after a stored 500": {
			GetIntent, Visa, FaultOnce(stripetest.ErrorBefore, Confirm), "422 canceled", "200", "create 200, confirm 500, get 200 ×2, cancel-2 200",
		},
	} {
		run := func(t *testing.T, by string, mark Step) {
			t.Helper()
			t.Parallel()
			f := NewFixture(t, Setup{Connections: 4, Concurrent: true})
			if test.fault != nil {
				f.Do(test.fault)
			}
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: test.held})
			var outcome string
			var running sync.WaitGroup
			running.Go(func() { outcome = Outcome(f.CreateOrder(test.card)) })
			<-held.Reached()
			canceling := f.WithKey(t, f.Key)
			canceling.Do(mark)
			held.Release()
			running.Wait()
			require.Equal(t, test.order, outcome)
			f.Do(ExpectCalls(test.calls))
			if by == "client" {
				canceling.Do(Retry(test.cancel))
			}
			f.CheckFinal()
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
	f := NewFixture(t, Setup{Configure: func(config *pgxpool.Config) {
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
	f.Do(Create("database unavailable"), Create("422 canceled"))
	require.True(t, marked)
	f.CheckFinal()

	f = NewFixture(t, Setup{}, Before(Confirm, func(f *Fixture) { f.Exec(mark) }), Create("201"))
	f.CheckFinal()
}

// The errors of the order's run neither end nor park the key of the cancel, and the lease of the cancel
// ends that run.
func TestCancel_innerErrors(t *testing.T) {
	t.Parallel()
	const unavailable = "database unavailable" // because the time of the step is over
	for name, test := range map[string]struct {
		want   string
		inject func(f *Fixture)
		lease  time.Duration
	}{
		"action required": {"503 outcome unknown, 1s", func(f *Fixture) {
			f.Exec("UPDATE orders SET cancel_requested_at = NULL")
		}, 0},
		"lease lost": {"503 outcome unknown, 1s", func(f *Fixture) {
			f.Do(Before(Cancel, func(f *Fixture) {
				f.Exec("UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE operation = 'create_order'")
			}))
		}, 0},
		"panic": {"panic", func(f *Fixture) {
			f.Do(Before(Cancel, func(*Fixture) { panic("of the test") }))
		}, 0},
		"time is over": {unavailable, func(f *Fixture) {
			f.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: GetIntent, Times: stripetest.Always})
		}, 2 * time.Second}, // not over before the call
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Lease: test.lease}, Challenge)
			request := cancelRequest(f.Account, OrderID(f.Account, f.Key), cancelKey(f))
			request.OnClaim = func() { test.inject(f) }
			first := func(f *Fixture) (idempotency.Result, error) { return f.Cancel(t.Context(), request) }
			if test.want == "panic" {
				require.Panics(t, func() { _, _ = first(f) })
			} else {
				f.Expect(test.want, first)
			}
			require.Equal(t, 1, f.Count(`
SELECT count(*)
  FROM idempotency_keys
 WHERE operation = 'cancel_order'
   AND locked_at IS NULL
   AND action_required_at IS NULL
   AND last_error IS NOT NULL`))
			if name != "lease lost" {
				require.Zero(t, f.Count("SELECT count(*) FROM idempotency_keys WHERE locked_at IS NOT NULL"), "the order's key is released")
			}
			f.Exec("UPDATE idempotency_keys SET locked_at = locked_at - $1::interval", 2*LeaseDuration)
			f.Exec("UPDATE orders SET cancel_requested_at = now()")
			f.Transport.Intercept(nil)
			f.Do(cancelOrder("200"), expectFailure("canceled"))
			f.CheckFinal()
		})
	}
}

// An order without an intent is cancelled, and a failover loses that. The cancelled intent, which the cancel created,
// keeps the retry from charging the card.
func TestCancel_lost(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, MakeUnavailable(CreateIntent), Create("503 unavailable, 2s"))
	f.Do(Respond(CreateIntent, 401, `"type":"invalid_request_error"`), cancelOrder("503 outcome unknown, 1m0s"), Retry("200"), expectFailure("canceled"))
	f.Exec("DELETE FROM idempotency_keys WHERE operation = 'cancel_order'")
	f.Do(LoseRows, Create("422 payment_intent_canceled"), ExpectCharges(0))
	f.CheckFinal()
}

func TestCost_cancel(t *testing.T) {
	t.Parallel()
	wire := &idempotencytest.Wire{}
	f := NewFixture(t, Setup{Configure: wire.Configure})
	for range 2 { // the first time prepares the statements
		f = f.WithNewKey(t)
		f.Do(Challenge)
		wire.Reset()
		f.Do(cancelOrder("200"))
	}
	require.Equal(t, 11, wire.RoundTrips(), "round trips")
	require.Equal(t, 3, wire.Commits(), "commits")
}
