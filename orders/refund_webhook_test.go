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
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// hearOfRefund delivers an event about the only refund, as it is now.
func (s *sale) hearOfRefund(eventType string) (orders.Event, error) {
	s.t.Helper()
	payload, signature, err := s.stripe.Event(webhookSecret, eventType, s.stripe.Refunds()[0].ID)
	require.NoError(s.t, err)
	return handleEvent(s.t.Context(), s.service, payload, signature)
}

// What becomes of a refund days later. Whatever the events are called, however
// often and in which order they come, the books say what the provider says.
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
		"succeeds":                     {pendingRefund, pending, true, []string{"charge.refund.updated", "refund.updated"}, succeeded},
		"fails":                        {pendingRefund, pending, false, []string{"refund.updated", "refund.failed", "charge.refund.updated"}, failed},
		"succeeded, then fails":        {refundFail, succeeded, false, []string{"refund.failed"}, failed},
		"fails, and called created":    {pendingRefund, pending, false, []string{"refund.created"}, failed},
		"succeeds, and is told failed": {pendingRefund, pending, true, []string{"refund.failed"}, succeeded},
	} {
		for _, reaped := range []bool{false, true} {
			if reaped {
				name += ", its key reaped"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := openShop(t, terms{})
				sale := s.sell(test.card)
				first, err := sale.giveBack(oneRefund, `{}`)
				require.Equal(t, "201", say(first, err))
				require.Equal(t, test.before, sale.standing())
				_, err = sale.hearOfRefund("refund.created")
				require.NoError(t, err)
				require.Equal(t, test.before, sale.standing(), "nothing has happened yet")
				if reaped {
					require.Equal(t, 2, s.reap())
				}

				require.NoError(t, s.stripe.Settle(s.stripe.Refunds()[0].ID, test.success))
				s.wire.forget()
				for _, eventType := range test.events {
					event, err := sale.hearOfRefund(eventType)
					require.NoError(t, err)
					require.Equal(t, refundOf(s.account, oneRefund), event.RefundID)
					require.Equal(t, test.after, sale.standing())
				}
				asked := "get 200"
				if n := len(test.events); n > 1 {
					asked = fmt.Sprintf("get 200 ×%d", n)
				}
				require.Equal(t, asked, s.wire.said(), "it was asked, not believed")
				story, err := orders.History(t.Context(), s.pool, s.account, oneRefund)
				require.NoError(t, err)
				require.Len(t, story.Records, 3, "created, made, settled, and no more")
				if !reaped {
					again, err := sale.giveBack(oneRefund, `{}`)
					require.Equal(t, "201", say(again, err))
					require.Equal(t, first.Response, again.Response, "a stored answer does not change")
				}
				if test.after == failed {
					require.Equal(t, "201", say(sale.giveBack("once-more-elsewhere", `{"amount":300}`)), "the money can go back anew")
				}
				checkRefunds(t, s)
			})
		}
	}
}

// An event makes a refund go on that nobody heard of.
func TestHandleEvent_finishesARefund(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(visa)
	var injected []*stripetest.Injection
	for _, rule := range append(failing(stripetest.CloseAfter, refundEndpoint), unlisted(1)) {
		injected = append(injected, s.stripe.Inject(rule))
	}
	require.Equal(t, "unknown 2s", say(sale.giveBack(oneRefund, oneBody)))
	for _, i := range injected {
		i.Release()
	}
	event, err := sale.hearOfRefund("refund.created")
	require.NoError(t, err)
	require.Equal(t, idempotency.KeyID(s.account, oneRefund), event.KeyID)
	require.Equal(t, 201, event.Result.Response.Status)
	require.Equal(t, refunded, sale.standing())
	checkRefunds(t, s)
}

// Events overtake our own commits: one that comes while the run waits for its
// answer is not lost, and what it brought is not undone by the older answer.
func TestHandleEvent_overtakesTheRun(t *testing.T) {
	t.Parallel()
	for name, success := range map[string]bool{"succeeded": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{crowd: true})
			sale := s.sell(pendingRefund)
			held := s.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: refundEndpoint})
			done := make(chan string, 1)
			req := refundRequest(t, s.account, sale.order, oneRefund, `{}`)
			go func() { done <- say(s.service.Refund(t.Context(), sale.order, req)) }()
			<-held.Reached()
			require.NoError(t, s.stripe.Settle(s.stripe.Refunds()[0].ID, success))
			_, err := sale.hearOfRefund("refund.updated")
			require.NoError(t, err)
			require.EqualValues(t, name, sale.refund(oneRefund).Status)
			held.Release()
			require.Equal(t, "201", <-done, "which says pending: the answer is older than the event")
			require.EqualValues(t, name, sale.refund(oneRefund).Status)
			checkRefunds(t, s)
		})
	}
}

// An answer of the provider that is older than what the books have learnt since
// changes nothing.
func TestHandleEvent_staleAnswers(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(refundFail)
	require.Equal(t, "201", say(sale.giveBack(oneRefund, oneBody)))
	says := func(status string) {
		s.wire.put(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
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
		_, err := sale.hearOfRefund("refund.updated")
		require.NoError(t, err)
	}
	says("pending")
	require.Equal(t, orders.RefundSucceeded, sale.refund(oneRefund).Status)
	require.NoError(t, s.stripe.Settle(s.stripe.Refunds()[0].ID, false))
	says("failed")
	require.Equal(t, orders.RefundFailed, sale.refund(oneRefund).Status)
	for _, older := range []string{"pending", "requires_action", "succeeded", "canceled"} {
		says(older)
		require.Equal(t, orders.RefundFailed, sale.refund(oneRefund).Status)
	}
	s.wire.put(nil)
	require.Equal(t, "paid 0, failed 1800; 0", sale.standing())
	checkRefunds(t, s)
}

// Events about refunds that are not what they say, or not ours.
func TestHandleEvent_refundsOfOthers(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(visa)
	require.Equal(t, "201", say(sale.giveBack(oneRefund, oneBody)))
	made := s.stripe.Refunds()[0]
	metadata := func(change func(map[string]string)) map[string]string {
		m := map[string]string{
			"account_id":         s.account.String(),
			"order_id":           sale.order.String(),
			"refund_id":          refundOf(s.account, oneRefund).String(),
			"idempotency_key_id": idempotency.KeyID(s.account, oneRefund).String(),
		}
		change(m)
		return m
	}
	standing, before := sale.standing(), s.snapshot()
	for name, test := range map[string]struct {
		id       string
		metadata map[string]string
		fails    bool
	}{
		"without metadata":          {made.ID, nil, false},
		"of another database":       {made.ID, metadata(func(m map[string]string) { m["account_id"] = uuid.NewString() }), false},
		"of a refund of nobody":     {made.ID, metadata(func(m map[string]string) { m["refund_id"] = uuid.NewString() }), false},
		"of a refund without name":  {made.ID, metadata(func(m map[string]string) { delete(m, "refund_id") }), false},
		"that the provider has not": {"re_nobody", metadata(func(map[string]string) {}), true},
		"that is no refund":         {"pi_1", metadata(func(map[string]string) {}), true},
	} {
		_, err := s.hearOf("refund.updated", map[string]any{
			"object": "refund", "id": test.id, "payment_intent": sale.intent, "metadata": test.metadata, "status": "failed",
		})
		require.Equal(t, test.fails, err != nil, "%s: %v", name, err)
	}
	require.Equal(t, standing, sale.standing())
	require.Equal(t, before, s.snapshot())

	// Another refund of the same intent, which says that it is ours.
	sale.refundElsewhere(map[string][]string{"amount": {"1800"}, "metadata[refund_id]": {refundOf(s.account, oneRefund).String()}})
	_, err := s.hearOf("refund.updated", map[string]any{
		"object": "refund", "id": s.stripe.Refunds()[1].ID, "payment_intent": sale.intent, "metadata": metadata(func(map[string]string) {}),
	})
	var answer *payments.Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, "not_our_refund", answer.Code)
	require.Equal(t, before, s.snapshot())
}

// An operator closed the refund, and the provider made it in spite of all care.
// The books say what is so, the stored answer stays, and somebody is told.
func TestHandleEvent_ofAClosedRefund(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(visa)
	later := s.stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorLater, Endpoint: refundEndpoint})
	require.Equal(t, "unknown 1h0m0s", say(sale.giveBack(oneRefund, oneBody)))
	s.idle(time.Hour)
	s.forgetKeys()
	require.Equal(t, "422 closed_by_operator", say(s.service.Resolve(t.Context(), s.account, idempotency.KeyID(s.account, oneRefund), why)))
	later.Release()
	require.Zero(t, s.log.alarms())
	_, err := sale.hearOfRefund("refund.created")
	require.NoError(t, err)
	require.Equal(t, refunded, sale.standing())
	require.Equal(t, 1, s.log.alarms())
	require.Equal(t, "422 closed_by_operator", say(sale.giveBack(oneRefund, oneBody)))
}
