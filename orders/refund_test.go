package orders_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

func TestRefund_inParts(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(visa)
	result, err := sale.giveBack("the-first-part-of-it", `{"amount":1800,"reason":"duplicate"}`)
	require.Equal(t, "201", say(result, err))
	part := sale.refund("the-first-part-of-it")
	require.Equal(t, refundOf(s.account, "the-first-part-of-it"), part.ID)
	require.Equal(t, map[string]string{
		"Content-Type": "application/json",
		"Location":     "/v1/orders/" + sale.order.String() + "/refunds/" + part.ID.String(),
	}, result.Response.Headers)
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"order_id":%q,"amount":1800,"currency":"usd","reason":"duplicate","status":"succeeded","refund_id":%q,"created_at":%q}`,
		part.ID, sale.order, s.stripe.Refunds()[0].ID, stamp(part.CreatedAt)), string(result.Response.Body))
	var answered orders.Refund
	require.NoError(t, json.Unmarshal(result.Response.Body, &answered))
	require.Equal(t, part, answered)

	sent := s.stripe.Requests()[len(s.stripe.Requests())-1]
	require.Equal(t, "orders-api-"+idempotency.KeyID(s.account, "the-first-part-of-it").String()+"-refund", sent.Key)
	form, err := url.ParseQuery(string(sent.Body))
	require.NoError(t, err)
	require.Equal(t, url.Values{
		"payment_intent":               {sale.intent},
		"amount":                       {"1800"},
		"reason":                       {"duplicate"},
		"metadata[account_id]":         {s.account.String()},
		"metadata[order_id]":           {sale.order.String()},
		"metadata[refund_id]":          {part.ID.String()},
		"metadata[idempotency_key_id]": {idempotency.KeyID(s.account, "the-first-part-of-it").String()},
	}, form)

	require.Equal(t, "invalid", say(sale.giveBack("more-than-what-is-left", `{"amount":2501}`)))
	require.Equal(t, "201", say(sale.giveBack("all-that-is-left-of-it", `{}`)))
	require.Equal(t, "invalid", say(sale.giveBack("when-nothing-is-left-of-it", `{}`)))
	require.Equal(t, "refunded 4300, succeeded 2500, succeeded 1800; 4300", sale.standing())
	require.Equal(t, 3, s.count("SELECT count(*) FROM idempotency_keys"), "what is refused uses no key")
	checkRefunds(t, s)
}

func TestRefund_ofWhatIsNotPaid(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	require.Equal(t, "402 expired_card expired_card", say(s.buy("pm_card_chargeDeclinedExpiredCard")))
	pending := s.with(t, "an-order-still-on-its-way")
	pending.stopAt(confirmEndpoint, visa)
	for _, key := range []idempotency.Key{s.key, pending.key} {
		order := &sale{s, orderOf(s.account, key), ""}
		require.Equal(t, "invalid", say(order.giveBack(oneRefund, `{}`)))
	}
	nowhere := &sale{s, uuid.New(), ""}
	_, err := nowhere.giveBack(oneRefund, `{}`)
	require.ErrorIs(t, err, orders.ErrNotFound)
	require.Zero(t, s.count("SELECT count(*) FROM refunds"))
}

// Ten refunds at once, each sent twice: together they give back what was charged
// and not more.
func TestRefund_racing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body   string
		made   int
		faults []stripetest.Rule
		stands int64
	}{
		"parts":                       {`{"amount":1000}`, 4, nil, 4000},
		"the whole":                   {`{}`, 1, nil, 4300},
		"parts, and answers are lost": {`{"amount":1000}`, 4, []stripetest.Rule{{Fault: stripetest.CloseAfter, Endpoint: refundEndpoint, Times: 7}}, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const racers = 10
			s := openShop(t, terms{conns: 8, crowd: true})
			sale := s.sell(visa)
			for _, rule := range test.faults {
				s.stripe.Inject(rule)
			}
			var all sync.WaitGroup
			said := make([]string, 2*racers)
			for i := range said {
				req := refundRequest(t, s.account, sale.order, idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i/2)), test.body)
				all.Go(func() { said[i] = say(s.service.Refund(t.Context(), sale.order, req)) })
			}
			all.Wait()
			for i, answer := range said {
				require.Contains(t, []string{"201", "in progress", "invalid"}, answer, "racer %d", i)
			}
			made := 0
			for i := range racers {
				answer := say(sale.giveBack(idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i)), test.body))
				require.Contains(t, []string{"201", "invalid"}, answer)
				if answer == "201" {
					made++
				}
			}
			require.Equal(t, test.made, made)
			require.Len(t, s.stripe.Refunds(), made)
			require.Equal(t, test.stands, s.stripe.Charges()[0].Refunded)
			checkRefunds(t, s)
		})
	}
}

// Both COMMITs meet each end that leaves their outcome in doubt (R22).
func TestRefund_commitInDoubt(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		for name, fault := range map[string]idempotencytest.Fault{
			"cut before":     idempotencytest.CutBefore,
			"cut after":      idempotencytest.CutAfter,
			"ended before":   idempotencytest.FatalBefore,
			"ended after":    idempotencytest.FatalAfter,
			"not replicated": idempotencytest.NotReplicated,
		} {
			t.Run(fmt.Sprintf("commit %d, %s", n, name), func(t *testing.T) {
				t.Parallel()
				proxy := idempotencytest.NewProxy(t)
				s := openShop(t, terms{configure: proxy.Configure})
				sale := s.sell(visa)
				proxy.Strike(n, fault)
				result, err := sale.giveBack(oneRefund, oneBody)
				require.True(t, proxy.Struck())
				if fault == idempotencytest.NotReplicated {
					require.ErrorIs(t, err, postgres.ErrUnavailable)
					result, err = sale.giveBack(oneRefund, oneBody)
				}
				require.Equal(t, "201", say(result, err))
				require.Len(t, s.stripe.Refunds(), 1)
				require.Equal(t, refunded, sale.standing())
				checkRefunds(t, s)
			})
		}
	}
}

// A run that died is taken up by the completer, which has no client, with the
// amount that was decided then.
func TestRefund_completer(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]stripetest.Rule{
		"before the refund": failing(stripetest.RateLimit, refundEndpoint),
		"behind the refund": append(failing(stripetest.CloseAfter, refundEndpoint), unlisted(1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			sale := s.sell(visa)
			var injected []*stripetest.Injection
			for _, rule := range faults {
				injected = append(injected, s.stripe.Inject(rule))
			}
			require.Contains(t, []string{"unavailable 2s", "unknown 2s"}, say(sale.giveBack(oneRefund, `{}`)))
			require.Equal(t, "invalid", say(sale.giveBack("another-refund-meanwhile", `{"amount":1}`)), "the amount is held")
			for _, i := range injected {
				i.Release()
			}
			s.with(t, oneRefund).lease(2 * lockTimeout)
			s.exec(`UPDATE idempotency_keys SET request_params = '{"amount":"all"}' WHERE operation = 'create_refund'`)
			s.idle(2 * grace)
			require.Equal(t, idempotency.CompleterResult{Completed: 1}, s.complete())
			require.Equal(t, "refunded 4300, succeeded 4300; 4300", sale.standing())
			checkRefunds(t, s)
		})
	}
}

// A restore that lost the refund, and the provider knows it still: the client's
// retry finds it, at any age (R5).
func TestRefund_lostInARestore(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(visa)
	first, err := sale.giveBack(oneRefund, oneBody)
	require.Equal(t, "201", say(first, err))
	s.exec("DELETE FROM refunds")
	s.exec("DELETE FROM idempotency_keys WHERE operation = 'create_refund'")
	s.exec("DELETE FROM audit_records WHERE resource_type = 'refund'")
	s.exec("UPDATE orders SET amount_refunded = 0, status = 'paid'")
	s.stripe.Advance(48 * time.Hour)
	s.wire.forget()
	require.Equal(t, "201", say(sale.giveBack(oneRefund, oneBody)))
	require.Equal(t, "list 200", s.wire.said())
	require.Equal(t, refunded, sale.standing())
	checkRefunds(t, s)
}

func TestRefund_reapedKeys(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(visa)
	require.Equal(t, "201", say(sale.giveBack(oneRefund, `{}`)))
	require.Equal(t, 2, s.reap())
	s.wire.forget()

	var expired *orders.KeyExpiredError
	refund := &orders.KeyExpiredError{OrderID: sale.order, RefundID: refundOf(s.account, oneRefund)}
	_, err := sale.giveBack(oneRefund, `{}`)
	require.ErrorAs(t, err, &expired)
	require.Equal(t, refund, expired, "although nothing is left either")
	_, err = s.service.Create(t.Context(), request(t, s.account, oneRefund, visa))
	require.ErrorAs(t, err, &expired)
	require.Equal(t, refund, expired, "an order with the key of a refund")
	_, err = sale.giveBack(s.key, `{}`)
	require.ErrorAs(t, err, &expired)
	require.Equal(t, &orders.KeyExpiredError{OrderID: sale.order}, expired, "a refund with the key of an order")
	require.Equal(t, "expired", say(s.buy(visa)))
	require.Empty(t, s.wire.said())
	require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys"))
	checkRefunds(t, s)
}

func TestListRefunds(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	one, other := s.sell(visa), s.with(t, "another-order-of-theirs").sell(visa)
	var newest []orders.Refund
	for i := range 5 {
		key := idempotency.Key(fmt.Sprintf("one-of-five-refunds-%d", i))
		require.Equal(t, "201", say(one.giveBack(key, `{"amount":10}`)))
		newest = append([]orders.Refund{one.refund(key)}, newest...)
	}
	require.Equal(t, "201", say(other.giveBack("a-refund-of-the-other", `{}`)))

	after := uuid.Nil
	var walked []orders.Refund
	for more := true; more; {
		page, follows, err := s.service.ListRefunds(t.Context(), s.account, one.order, 2, after)
		require.NoError(t, err)
		walked, more, after = append(walked, page...), follows, page[len(page)-1].ID
	}
	require.Equal(t, newest, walked)

	stranger := idempotencytest.Account(t, s.pool)
	_, _, err := s.service.ListRefunds(t.Context(), stranger, one.order, 2, uuid.Nil)
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, err = s.service.GetRefund(t.Context(), stranger, one.order, newest[0].ID)
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, err = s.service.GetRefund(t.Context(), s.account, other.order, newest[0].ID)
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, err = s.service.Refund(t.Context(), one.order, refundRequest(t, stranger, one.order, "the-key-of-a-stranger", `{}`))
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, _, err = s.service.ListRefunds(t.Context(), s.account, other.order, 2, newest[0].ID)
	require.Equal(t, "invalid", say(idempotency.Result{}, err))
	_, _, err = s.service.ListRefunds(t.Context(), s.account, one.order, 0, uuid.Nil)
	require.Error(t, err)
}

// How an operator ends a refund: never with a failure while it may still be made.
func TestResolve_refunds(t *testing.T) {
	t.Parallel()
	const quiet = 11 * time.Minute
	lost := append(failing(stripetest.CloseAfter, refundEndpoint), unlisted(1))
	for name, test := range map[string]struct {
		faults []stripetest.Rule
		age    time.Duration // of the last run
		older  bool          // the provider has forgotten its keys
		want   string
		stands string
	}{
		"made, which nobody heard of":            {faults: lost, want: "201", stands: "refunded 4300, succeeded 4300; 4300"},
		"not made, but perhaps still on its way": {faults: failing(stripetest.CloseBefore, refundEndpoint), want: "unknown 10m0s", stands: "paid 0, pending 4300; 0"},
		"not made, and nothing on its way":       {faults: failing(stripetest.CloseBefore, refundEndpoint), age: quiet, want: "422 closed_by_operator", stands: "paid 0, failed 4300; 0"},
		"a kept 500, whose effect may come":      {faults: once(stripetest.ErrorBefore, refundEndpoint), age: quiet, want: "unknown 1h0m0s", stands: "paid 0, pending 4300; 0"},
		"a kept 500, a day later":                {faults: once(stripetest.ErrorBefore, refundEndpoint), age: quiet, older: true, want: "422 closed_by_operator", stands: "paid 0, failed 4300; 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			sale := s.sell(visa)
			var injected []*stripetest.Injection
			for _, rule := range test.faults {
				injected = append(injected, s.stripe.Inject(rule))
			}
			require.Contains(t, []string{"unknown 1s", "unknown 2s", "unknown 1h0m0s"}, say(sale.giveBack(oneRefund, `{}`)))
			for _, i := range injected {
				i.Release()
			}
			s.idle(test.age)
			if test.older {
				s.forgetKeys()
			}
			resolve := func() (idempotency.Result, error) {
				return s.service.Resolve(t.Context(), s.account, idempotency.KeyID(s.account, oneRefund), why)
			}
			require.Equal(t, test.want, say(resolve()))
			require.Equal(t, test.stands, sale.standing())
			if test.want == "unknown 10m0s" {
				require.Equal(t, test.want, say(resolve()), "the first try was a run, too")
			}
			if test.want == "422 closed_by_operator" {
				require.Equal(t, test.want, say(sale.giveBack(oneRefund, `{}`)), "the client's retry")
				require.Equal(t, "201", say(sale.giveBack("the-same-refund-again", `{}`)), "the amount is free again")
			}
			if test.want[0] != 'u' {
				checkRefunds(t, s)
			}
		})
	}
}

// A run that began between the operator's look and his own may have sent it.
func TestResolve_refundsBesideAnotherRun(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(visa)
	limit := s.stripe.Inject(failing(stripetest.RateLimit, refundEndpoint)[0])
	require.Equal(t, "unavailable 2s", say(sale.giveBack(oneRefund, `{}`)))
	limit.Release()
	s.idle(time.Hour)
	held := s.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: listRefundsEndpoint})
	done := make(chan string, 1)
	go func() { done <- say(sale.takeUpRefund(oneRefund)) }()
	<-held.Reached()
	_, err := s.service.Resolve(t.Context(), s.account, idempotency.KeyID(s.account, oneRefund), why)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	held.Release()
	require.Equal(t, "201", <-done)
	checkRefunds(t, s)
}

func TestHistory_ofARefund(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	sale := s.sell(pendingRefund)
	require.Equal(t, "201", say(sale.giveBack(oneRefund, oneBody)))
	story, err := orders.History(t.Context(), s.pool, s.account, oneRefund)
	require.NoError(t, err)
	require.Equal(t, s.order(), story.Order)
	require.Equal(t, sale.refund(oneRefund), *story.Refund)
	require.Equal(t, []string{"refund refund.created", "refund refund.pending"}, s.with(t, oneRefund).history())
	require.Equal(t, clientIP.String(), story.Records[1].ClientIP)
}
