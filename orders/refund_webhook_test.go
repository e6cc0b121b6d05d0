package orders_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func (f *fixture) deliverRefundEvent(eventType string) (delivered, error) {
	f.t.Helper()
	payload, signature, err := f.Stripe.Event(orderstest.WebhookSecret, eventType, f.Stripe.Refunds()[0].ID)
	require.NoError(f.t, err)
	return handleEvent(f.t.Context(), f.Webhooks(), payload, signature)
}

func TestHandleEvent_refundDecidedLater(t *testing.T) {
	t.Parallel()
	const pending, succeeded, failed = "refunded 4300, pending 4300; 4300", "refunded 4300, succeeded 4300; 4300", "paid 0, failed 4300; 0"
	for name, test := range map[string]struct {
		card    string
		before  string
		success bool
		events  []string
		calls   string
		after   string
		reaped  bool // the key
	}{
		"succeeds":                              {pendingRefund, pending, true, []string{"charge.refund.updated", "refund.updated"}, "get 200 ×2", succeeded, false},
		"fails":                                 {pendingRefund, pending, false, []string{"refund.updated", "refund.failed", "charge.refund.updated"}, "get 200 ×3", failed, false},
		"fails after it succeeded":              {refundFail, succeeded, false, []string{"refund.failed"}, "get 200", failed, false},
		"fails, key reaped, event says created": {pendingRefund, pending, false, []string{"refund.created"}, "get 200", failed, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, createPaid(test.card))
			first, err := f.refund(oneRefund, `{}`)
			require.Equal(t, "201", outcomeOf(first, err))
			require.Equal(t, test.before, f.summary())
			_, err = f.deliverRefundEvent("refund.created")
			require.NoError(t, err)
			require.Equal(t, test.before, f.summary(), "the status is unchanged")
			if test.reaped {
				require.Equal(t, 2, idempotencytest.Reap(t, f.Pool))
			}

			require.NoError(t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, test.success))
			f.transport.reset()
			for _, eventType := range test.events {
				event, err := f.deliverRefundEvent(eventType)
				require.NoError(t, err)
				require.Equal(t, refundID(f.Account, oneRefund), event.RefundID)
				require.Equal(t, test.after, f.summary())
			}
			f.do(expectCalls(test.calls))
			require.Equal(t, 3, f.count("SELECT count(*) FROM audit_records WHERE resource_id = $1", refundID(f.Account, oneRefund).String()), "one for each change")
			if !test.reaped {
				again, err := f.refund(oneRefund, `{}`)
				require.NoError(t, err)
				require.Equal(t, first.Response, again.Response, "a stored response does not change")
			}
			if test.after == failed {
				require.Equal(t, "201", outcomeOf(f.refund("another-refund-of-it", `{"amount":300}`)), "the amount is released")
			}
			checkRefundInvariants(t, f)
		})
	}
}

// An event arrives before the provider's response, which is older and does not revert it.
func TestHandleEvent_refundInProgress(t *testing.T) {
	t.Parallel()
	for name, success := range map[string]bool{"succeeded": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{concurrent: true}, createPaid(pendingRefund))
			held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: makeRefund})
			done := make(chan string, 1)
			req := refundRequest(t, f.Account, orderID(f.Account, f.key), oneRefund, `{}`)
			go func() { done <- outcomeOf(f.Refund(t.Context(), req)) }()
			<-held.Reached()
			require.NoError(t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, success))
			_, err := f.deliverRefundEvent("refund.updated")
			require.NoError(t, err)
			require.EqualValues(t, name, f.getRefund(oneRefund).Status)
			held.Release()
			require.Equal(t, "201", <-done, "with status pending: the response is older than the event")
			require.EqualValues(t, name, f.getRefund(oneRefund).Status)
			checkRefundInvariants(t, f)
		})
	}
}

func TestHandleEvent_refundNotOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	require.Equal(t, "201", outcomeOf(f.refund(oneRefund, oneBody)))
	made := f.Stripe.Refunds()[0]
	metadata := func(change func(map[string]string)) map[string]string {
		m := map[string]string{
			"account_id":         f.Account.String(),
			"order_id":           orderID(f.Account, f.key).String(),
			"refund_id":          refundID(f.Account, oneRefund).String(),
			"idempotency_key_id": idempotency.KeyID(f.Account, oneRefund).String(),
		}
		change(m)
		return m
	}
	summary, before := f.summary(), f.snapshot()
	for name, test := range map[string]struct {
		id       string
		metadata map[string]string
		fails    bool
	}{
		"no metadata":             {made.ID, nil, false},
		"unknown refund":          {made.ID, metadata(func(m map[string]string) { m["refund_id"] = uuid.NewString() }), false},
		"unknown at the provider": {"re_unknown", metadata(func(map[string]string) {}), true},
	} {
		_, err := f.deliverEventAbout("refund.updated", map[string]any{
			"object": "refund", "id": test.id, "payment_intent": f.intentID(), "metadata": test.metadata, "status": "failed",
		})
		require.Equal(t, test.fails, err != nil, "%s: %v", name, err)
	}
	require.Equal(t, summary, f.summary())
	require.Equal(t, before, f.snapshot())

	f.do(refundAtProvider("amount", "1800", "metadata[refund_id]", refundID(f.Account, oneRefund).String()))
	_, err := f.deliverEventAbout("refund.updated", map[string]any{
		"object": "refund", "id": f.Stripe.Refunds()[1].ID, "payment_intent": f.intentID(), "metadata": metadata(func(map[string]string) {}),
	})
	var failed *payments.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "not_our_refund", failed.Code)
	require.Equal(t, before, f.snapshot())
}

func TestHandleEvent_resolvedRefund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	later := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorLater, Endpoint: makeRefund})
	f.do(refund("503 outcome unknown, 1h0m0s"))
	f.ageLastRun(time.Hour)
	f.expireProviderKeys()
	require.Equal(t, "422 closed_by_operator", outcomeOf(f.resolveKey(f.refundKey())))
	later.Release()
	require.Zero(t, f.log.errorLines())
	_, err := f.deliverRefundEvent("refund.created")
	require.NoError(t, err)
	require.Equal(t, 1, f.log.errorLines())
	f.do(expectSummary(refunded), retry("422 closed_by_operator"))
}
