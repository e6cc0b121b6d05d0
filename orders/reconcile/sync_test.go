package reconcile_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/jobs"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

// An event arrives while its order's job is being worked off, and has read the provider before.
func TestChanges_eventDuringAttempt(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Concurrent: true, Connections: 2}, CreatePaid(Visa), readEvents, refundAtDashboard(100, ""))
	f.Do(After(ListDisputes, func(f *Fixture) {
		refundAtDashboard(200, "")(f)
		require.NoError(t, f.Changes.ReadList(t.Context()))
	}))
	f.Do(readEvents, readEvents)
	require.Equal(t, "partially_refunded 300: succeeded 100 provider, succeeded 200 provider", changes(f))
	checkChanges(t, f)
	require.Empty(t, staged(f))
}

// The customer pays with another card after the failure, and is refunded at the dashboard. The order stays
// failed.
func TestChanges_failedOrder(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, OffSession, PayWith(DeclinedCard), Create("402 card_declined generic_decline"))
	require.NoError(t, f.Stripe.ConfirmAsCustomer(f.IntentID(), Visa))
	f.Do(refundAtDashboard(0, ""), readEvents)
	require.Equal(t, "payment_failed 0: succeeded 4300 provider", changes(f))
}

// A restricted key may not read disputes: refunds are recorded, and the job waits for the permission. The pass ends,
// because no other order can be read either, and the attempt does not count.
func TestChanges_restrictedKey(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Concurrent: true}, CreatePaid(Visa), refundAtDashboard(1800, ""), dispute(700, "won"))
	others := make([]*Fixture, 10)
	for i := range others {
		others[i] = f.WithNewKey(t)
		others[i].Do(CreatePaid(Visa), dispute(700, "won"))
	}
	require.NoError(t, f.Changes.ReadList(t.Context()))
	for endpoint, fault := range map[string]stripetest.Fault{ListDisputes: stripetest.Forbidden, ListRefunds: stripetest.Unauthorized} {
		f.Exec("UPDATE staged_jobs SET run_at = created_at, attempt = $1 WHERE kind = 'provider_change'", jobs.MaxAttempts-1)
		f.Exec("UPDATE staged_jobs SET run_at = created_at - interval '1 hour' WHERE id = $1", OrderID(f.Account, f.Key))
		f.Do(Fault(fault, endpoint))
		f.Transport.Reset()
		loop := f.Changes.Worker().Loop()
		for range 3 {
			require.NoError(t, loop.Pass(t.Context()))
		}
		loop.Wait()
		require.LessOrEqual(t, f.Transport.Count("list"), loop.Concurrency+1)
		require.Zero(t, f.Count("SELECT count(*) FROM staged_jobs WHERE kind = 'provider_change' AND (failed_at IS NOT NULL OR attempt <> $1)", jobs.MaxAttempts-1))
		result, err := f.Changes.Worker().RunOnce(t.Context())
		require.NoError(t, err)
		require.NotZero(t, result[jobs.Misconfigured])
		f.Faults[len(f.Faults)-1].Release()
		if fault == stripetest.Forbidden {
			require.Equal(t, "partially_refunded 1800: succeeded 1800 provider", changes(f))
			require.Contains(t, staged(f), "status 403")
		}
	}
	require.LessOrEqual(t, f.Log.Count("level=ERROR msg=\"provider_change misconfigured"), 4*f.Changes.Worker().Concurrency, "in four passes")
	f.Do(readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider; won 700", changes(f))
	require.Empty(t, staged(f))
	checkChanges(t, f)
}

// An order that cannot be read blocks no other one. Its next event repeats its job, although that has failed.
func TestChanges_poison(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Concurrent: true}, CreatePaid(Visa), refundAtDashboard(1800, ""))
	poison := f.WithNewKey(t)
	poison.Do(CreatePaid(Visa), refundAtDashboard(1800, ""))
	unreadable := f.Stripe.Inject(stripetest.Rule{
		Fault: stripetest.AccountNotReady, Endpoint: ListRefunds, OrderID: OrderID(f.Account, poison.Key).String(), Times: stripetest.Always,
	})
	f.Do(readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider", changes(f))
	f.Exec("UPDATE staged_jobs SET attempt = $1 WHERE kind = 'provider_change'", jobs.MaxAttempts-1)
	f.Do(readEvents)
	require.Regexp(t, "^failed: list the refunds of pi_[^;]*$", staged(f))

	unreadable.Release()
	poison.Do(refundAtDashboard(0, ""), readEvents)
	require.Equal(t, "refunded 4300: succeeded 1800 provider, succeeded 2500 provider", changes(poison))
	checkChanges(t, f)
}

// A refund or a dispute that this program cannot read hides no other one, and no recorded one is forgotten. The
// job waits for a program that can read it.
func TestChanges_unreadableObjects(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), refundAtDashboard(1800, ""), refundAtDashboard(500, ""), dispute(300, "needs_response"))
	unreadable := "1800"
	f.Do(EditResponses(func(body []byte) []byte {
		return regexp.MustCompile(`"amount": (`+unreadable+`),`).ReplaceAll(body, []byte(`"amount": {"value": $1},`))
	}, ListRefunds, ListDisputes))
	f.Do(readEvents)
	require.Equal(t, "partially_refunded 500: succeeded 500 provider; needs_response 300", changes(f))
	unreadable = "1800|300"
	f.Do(dispute(700, "lost"), readEvents)
	require.Equal(t, "partially_refunded 500: succeeded 500 provider; needs_response 300, lost 700", changes(f))
	require.Contains(t, staged(f), "pending: list the refunds of pi_")
	require.Contains(t, staged(f), "unreadable response: "+f.Stripe.Refunds()[0].ID)

	f.Transport.Intercept(nil)
	f.Do(readEvents)
	require.Equal(t, "partially_refunded 2300: succeeded 500 provider, succeeded 1800 provider; needs_response 300, lost 700", changes(f))
	require.Empty(t, staged(f))
	checkChanges(t, f)
}

// After lost rows, a run adopts a charge that has been refunded and disputed. The list may not repeat
// these events.
func TestLostRows_adoptsRefunds(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, Create("201"), refundAtDashboard(1800, ""), dispute(700, "lost"), readEvents)
	f.Exec("DELETE FROM refunds")
	f.Exec("DELETE FROM audit_records WHERE action LIKE 'refund.%'")
	f.Do(LoseRows, RateLimit(CreateIntent), Create("503 unavailable, 2s"), Retry("201"), readEvents)
	require.Equal(t, "partially_refunded 1800: succeeded 1800 provider; lost 700", changes(f))
	checkChanges(t, f)
	f.Do(ExpectCharges(1))
}

// A job ends only if its own read was recorded. If it left the rest to another read, which may have read
// less, a dispute would be lost: no other event names it.
func TestChanges_jobStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first []Step // the read that is recorded beside the job
		want  string // after the job's next attempt
	}{
		"a later read could not read the disputes": {
			[]Step{CreatePaid(Visa), dispute(700, "lost"), After(ListDisputes, func(f *Fixture) {
				forbidden := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: ListDisputes})
				require.Error(t, syncOrder(f))
				forbidden.Release()
			})},
			"paid 0: ; lost 700",
		},
		"a later read began while the database's clock ran ahead": {
			[]Step{CreatePaid(Visa), dispute(700, "lost"), func(f *Fixture) {
				f.Exec("UPDATE orders SET provider_read_at = now() + interval '50 seconds'")
			}},
			"paid 0: ; lost 700",
		},
		"the intent is read as if the customer had not approved it": {
			[]Step{PayWith(ChallengeCard), Create("202 action required"), Approve, refundAtDashboard(1800, ""), dispute(700, "lost")},
			"partially_refunded 1800: succeeded 1800 provider; lost 700",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Concurrent: true, Connections: 2})
			f.Do(test.first...)
			if f.GetOrder().PaidAt == nil {
				f.Do(ReplaceInResponses(`"status": "succeeded"`, `"status": "requires_action", "next_action": {"type": "use_stripe_sdk"}`, GetIntent))
			}
			require.NoError(t, f.Changes.ReadList(t.Context()))
			_, err := f.Changes.Worker().RunOnce(t.Context())
			require.NoError(t, err)
			require.Contains(t, staged(f), "pending: ")

			f.Transport.Intercept(nil)
			f.Exec("UPDATE orders SET provider_read_at = least(provider_read_at, now())")
			f.Do(readEvents)
			require.Equal(t, test.want, changes(f))
			require.Empty(t, staged(f))
			checkChanges(t, f)
		})
	}
}

// A cancelled intent was never charged, so a refund of it is no refund of the order. An operator has to look.
func TestChanges_refundWithoutCharge(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, SetEndpoint, PayWith(DeclinedCard), Create("402 card_declined generic_decline"))
	intent := f.IntentID()
	refund := map[string]any{
		"object": "refund", "id": "re_1", "payment_intent": intent, "status": "succeeded", "amount": 4300, "currency": "usd", "metadata": map[string]string{},
	}
	body, err := json.Marshal(map[string]any{"object": "list", "data": []any{refund}, "has_more": false})
	require.NoError(t, err)
	f.Do(EditResponses(func([]byte) []byte { return body }, ListRefunds))
	_, err = deliverEventAbout(f, "charge.refund.updated", refund)
	require.NoError(t, err)
	workOff(f)
	require.Equal(t, "payment_failed 0: ", changes(f))
	require.Equal(t, []string{"refund_without_charge"}, findings(f))
	require.Equal(t, []string{"order.payment_failed"}, shopEvents(f))
	require.Empty(t, staged(f))
}
