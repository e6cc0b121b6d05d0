package orders_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// A job ends only if its own read was recorded. If it left the rest to another read, which may have read
// less, a dispute would be lost: no other event names it.
func TestChanges_jobStays(t *testing.T) {
	t.Parallel()
	sync := func(f *fixture) error { return f.Changes.Sync(f.t.Context(), f.Account, orderID(f.Account, f.key)) }
	for name, test := range map[string]struct {
		first []step // the read that is recorded beside the job
		want  string // after the job's next attempt
	}{
		"a later read could not read the disputes": {
			[]step{createPaid(visa), dispute(700, "lost"), after(listDisputes, func(f *fixture) {
				forbidden := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: listDisputes})
				require.Error(t, sync(f))
				forbidden.Release()
			})},
			"paid 0: ; lost 700",
		},
		"a later read began while the database's clock ran ahead": {
			[]step{createPaid(visa), dispute(700, "lost"), func(f *fixture) {
				f.exec("UPDATE orders SET provider_read_at = now() + interval '50 seconds'")
			}},
			"paid 0: ; lost 700",
		},
		"the intent is read as if the customer had not approved it": {
			[]step{payWith(challengeCard), create("202 action required"), approve, refundAtDashboard(1800, ""), dispute(700, "lost")},
			"partially_refunded 1800: succeeded 1800 provider; lost 700",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{concurrent: true, connections: 2})
			f.do(test.first...)
			if f.getOrder().PaidAt == nil {
				f.do(replaceInResponses(getIntent, `"status": "succeeded"`, `"status": "requires_action", "next_action": {"type": "use_stripe_sdk"}`))
			}
			require.NoError(t, f.Changes.ReadList(t.Context()))
			_, err := f.Changes.Worker().RunOnce(t.Context())
			require.NoError(t, err)
			require.Contains(t, f.staged(), "pending: ")

			f.transport.intercept(nil)
			f.exec("UPDATE orders SET provider_read_at = least(provider_read_at, now())")
			f.do(readEvents)
			require.Equal(t, test.want, f.changes())
			require.Empty(t, f.staged())
			checkChanges(t, f)
		})
	}
}

// A cancelled intent was never charged, so a refund of it is no refund of the order. An operator has to look.
func TestChanges_refundWithoutCharge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, setEndpoint, payWith(declinedCard), create("402 card_declined generic_decline"))
	intent := f.intentID()
	refund := map[string]any{
		"object": "refund", "id": "re_1", "payment_intent": intent, "status": "succeeded", "amount": 4300, "currency": "usd", "metadata": map[string]string{},
	}
	body, err := json.Marshal(map[string]any{"object": "list", "data": []any{refund}, "has_more": false})
	require.NoError(t, err)
	f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && callOf(req) == listRefunds {
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		return resp, err
	})
	_, err = f.deliverEventAbout("charge.refund.updated", refund)
	require.NoError(t, err)
	workOff(f)
	require.Equal(t, "payment_failed 0: ", f.changes())
	require.Equal(t, []string{"refund_without_charge"}, f.findings())
	require.Equal(t, []string{"order.payment_failed"}, f.shopEvents())
	require.Empty(t, f.staged())
}
