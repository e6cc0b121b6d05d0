package orders_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// deliverRefundEvent delivers an event about the only refund in its current state.
func (p *paidOrder) deliverRefundEvent(eventType string) (orders.Event, error) {
	p.t.Helper()
	payload, signature, err := p.stripe.Event(webhookSecret, eventType, p.stripe.Refunds()[0].ID)
	require.NoError(p.t, err)
	return handleEvent(p.t.Context(), p.service, payload, signature)
}

// The provider decides a refund days later. After any event, in any order, our record
// has the provider's status.
func TestHandleEvent_refundDecidedLater(t *testing.T) {
	t.Parallel()
	const pending, succeeded, failed = "refunded 4300, pending 4300; 4300", "refunded 4300, succeeded 4300; 4300", "paid 0, failed 4300; 0"
	for name, test := range map[string]struct {
		card    string
		before  string
		success bool
		events  []string
		after   string
	}{
		"succeeds":                    {pendingRefund, pending, true, []string{"charge.refund.updated", "refund.updated"}, succeeded},
		"fails":                       {pendingRefund, pending, false, []string{"refund.updated", "refund.failed", "charge.refund.updated"}, failed},
		"fails after it succeeded":    {refundFail, succeeded, false, []string{"refund.failed"}, failed},
		"fails, event says created":   {pendingRefund, pending, false, []string{"refund.created"}, failed},
		"succeeds, event says failed": {pendingRefund, pending, true, []string{"refund.failed"}, succeeded},
	} {
		for _, reaped := range []bool{false, true} {
			if reaped {
				name += ", key reaped"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, options{})
				p := f.createPaid(test.card)
				first, err := p.createRefund(oneRefund, `{}`)
				require.Equal(t, "201", outcomeOf(first, err))
				require.Equal(t, test.before, p.summary())
				_, err = p.deliverRefundEvent("refund.created")
				require.NoError(t, err)
				require.Equal(t, test.before, p.summary(), "the status is unchanged")
				if reaped {
					require.Equal(t, 2, idempotencytest.Reap(t, f.pool))
				}

				require.NoError(t, f.stripe.Settle(f.stripe.Refunds()[0].ID, test.success))
				f.transport.reset()
				for _, eventType := range test.events {
					event, err := p.deliverRefundEvent(eventType)
					require.NoError(t, err)
					require.Equal(t, refundID(f.account, oneRefund), event.RefundID)
					require.Equal(t, test.after, p.summary())
				}
				calls := "get 200"
				if n := len(test.events); n > 1 {
					calls = fmt.Sprintf("get 200 ×%d", n)
				}
				require.Equal(t, calls, f.transport.calls(), "the status is read from the provider")
				history, err := orders.History(t.Context(), f.pool, f.account, oneRefund)
				require.NoError(t, err)
				require.Len(t, history.Records, 3, "one for each change")
				if !reaped {
					again, err := p.createRefund(oneRefund, `{}`)
					require.Equal(t, "201", outcomeOf(again, err))
					require.Equal(t, first.Response, again.Response, "a stored response does not change")
				}
				if test.after == failed {
					require.Equal(t, "201", outcomeOf(p.createRefund("another-refund-of-it", `{"amount":300}`)), "the amount is released")
				}
				checkRefundInvariants(t, f)
			})
		}
	}
}

// An event finishes a refund whose response was lost.
func TestHandleEvent_unfinishedRefund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	var injected []*stripetest.Injection
	for _, rule := range append(always(stripetest.CloseAfter, refundEndpoint), listUnavailable(1)) {
		injected = append(injected, f.stripe.Inject(rule))
	}
	require.Equal(t, "unknown 2s", outcomeOf(p.createRefund(oneRefund, oneBody)))
	for _, i := range injected {
		i.Release()
	}
	event, err := p.deliverRefundEvent("refund.created")
	require.NoError(t, err)
	require.Equal(t, idempotency.KeyID(f.account, oneRefund), event.KeyID)
	require.Equal(t, 201, event.Result.Response.Status)
	require.Equal(t, refunded, p.summary())
	checkRefundInvariants(t, f)
}

// An event may arrive while the run waits for the provider's response. It is applied,
// and the older response does not revert it.
func TestHandleEvent_refundInProgress(t *testing.T) {
	t.Parallel()
	for name, success := range map[string]bool{"succeeded": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{concurrent: true})
			p := f.createPaid(pendingRefund)
			held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: refundEndpoint})
			done := make(chan string, 1)
			req := refundRequest(t, f.account, p.orderID, oneRefund, `{}`)
			go func() { done <- outcomeOf(f.service.Refund(t.Context(), p.orderID, req)) }()
			<-held.Reached()
			require.NoError(t, f.stripe.Settle(f.stripe.Refunds()[0].ID, success))
			_, err := p.deliverRefundEvent("refund.updated")
			require.NoError(t, err)
			require.EqualValues(t, name, p.getRefund(oneRefund).Status)
			held.Release()
			require.Equal(t, "201", <-done, "with status pending: the response is older than the event")
			require.EqualValues(t, name, p.getRefund(oneRefund).Status)
			checkRefundInvariants(t, f)
		})
	}
}

// A status that is older than our record changes nothing.
func TestHandleEvent_staleRefundStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(refundFail)
	require.Equal(t, "201", outcomeOf(p.createRefund(oneRefund, oneBody)))
	respond := func(status string) {
		f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			for _, now := range []string{"succeeded", "failed"} {
				body = []byte(strings.Replace(string(body), `"status": "`+now+`"`, `"status": "`+status+`"`, 1))
			}
			resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
			resp.Header.Del("Content-Length")
			return resp, err
		})
		_, err := p.deliverRefundEvent("refund.updated")
		require.NoError(t, err)
	}
	respond("pending")
	require.Equal(t, orders.RefundSucceeded, p.getRefund(oneRefund).Status)
	require.NoError(t, f.stripe.Settle(f.stripe.Refunds()[0].ID, false))
	respond("failed")
	require.Equal(t, orders.RefundFailed, p.getRefund(oneRefund).Status)
	for _, older := range []string{"pending", "requires_action", "succeeded", "canceled"} {
		respond(older)
		require.Equal(t, orders.RefundFailed, p.getRefund(oneRefund).Status)
	}
	f.transport.intercept(nil)
	require.Equal(t, "paid 0, failed 1800; 0", p.summary())
	checkRefundInvariants(t, f)
}

// Events about other refunds, or with wrong ids, change nothing.
func TestHandleEvent_refundNotOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	require.Equal(t, "201", outcomeOf(p.createRefund(oneRefund, oneBody)))
	made := f.stripe.Refunds()[0]
	metadata := func(change func(map[string]string)) map[string]string {
		m := map[string]string{
			"account_id":         f.account.String(),
			"order_id":           p.orderID.String(),
			"refund_id":          refundID(f.account, oneRefund).String(),
			"idempotency_key_id": idempotency.KeyID(f.account, oneRefund).String(),
		}
		change(m)
		return m
	}
	summary, before := p.summary(), f.snapshot()
	for name, test := range map[string]struct {
		id       string
		metadata map[string]string
		fails    bool
	}{
		"no metadata":             {made.ID, nil, false},
		"of another database":     {made.ID, metadata(func(m map[string]string) { m["account_id"] = uuid.NewString() }), false},
		"unknown refund":          {made.ID, metadata(func(m map[string]string) { m["refund_id"] = uuid.NewString() }), false},
		"no refund id":            {made.ID, metadata(func(m map[string]string) { delete(m, "refund_id") }), false},
		"unknown at the provider": {"re_unknown", metadata(func(map[string]string) {}), true},
		"not a refund":            {"pi_1", metadata(func(map[string]string) {}), true},
	} {
		_, err := f.deliverEventAbout("refund.updated", map[string]any{
			"object": "refund", "id": test.id, "payment_intent": p.intentID, "metadata": test.metadata, "status": "failed",
		})
		require.Equal(t, test.fails, err != nil, "%s: %v", name, err)
	}
	require.Equal(t, summary, p.summary())
	require.Equal(t, before, f.snapshot())

	// Another refund of the same intent, with our metadata.
	p.refundAtProvider(map[string][]string{"amount": {"1800"}, "metadata[refund_id]": {refundID(f.account, oneRefund).String()}})
	_, err := f.deliverEventAbout("refund.updated", map[string]any{
		"object": "refund", "id": f.stripe.Refunds()[1].ID, "payment_intent": p.intentID, "metadata": metadata(func(map[string]string) {}),
	})
	var failed *payments.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "not_our_refund", failed.Code)
	require.Equal(t, before, f.snapshot())
}

// The provider made a refund that an operator had ended. Our record is updated, the
// stored response stays, and an operator is alerted.
func TestHandleEvent_resolvedRefund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	later := f.stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorLater, Endpoint: refundEndpoint})
	require.Equal(t, "unknown 1h0m0s", outcomeOf(p.createRefund(oneRefund, oneBody)))
	f.ageLastRun(time.Hour)
	f.expireProviderKeys()
	require.Equal(t, "422 closed_by_operator", outcomeOf(f.service.Resolve(t.Context(), f.account, idempotency.KeyID(f.account, oneRefund), action)))
	later.Release()
	require.Zero(t, f.log.errorLines())
	_, err := p.deliverRefundEvent("refund.created")
	require.NoError(t, err)
	require.Equal(t, refunded, p.summary())
	require.Equal(t, 1, f.log.errorLines())
	require.Equal(t, "422 closed_by_operator", outcomeOf(p.createRefund(oneRefund, oneBody)))
}
