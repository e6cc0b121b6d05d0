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

func TestRefund_severalParts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	result, err := p.createRefund("the-first-part-of-it", `{"amount":1800,"reason":"duplicate"}`)
	require.Equal(t, "201", outcomeOf(result, err))
	part := p.getRefund("the-first-part-of-it")
	require.Equal(t, refundID(f.account, "the-first-part-of-it"), part.ID)
	require.Equal(t, map[string]string{
		"Content-Type": "application/json",
		"Location":     "/v1/orders/" + p.orderID.String() + "/refunds/" + part.ID.String(),
	}, result.Response.Headers)
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"order_id":%q,"amount":1800,"currency":"usd","reason":"duplicate","status":"succeeded","provider_refund_id":%q,"created_at":%q}`,
		part.ID, p.orderID, f.stripe.Refunds()[0].ID, formatTime(part.CreatedAt.Time)), string(result.Response.Body))
	var answered orders.Refund
	require.NoError(t, json.Unmarshal(result.Response.Body, &answered))
	require.Equal(t, part, answered)

	sent := f.stripe.Requests()[len(f.stripe.Requests())-1]
	require.Equal(t, "orders-api-"+idempotency.KeyID(f.account, "the-first-part-of-it").String()+"-refund", sent.Key)
	form, err := url.ParseQuery(string(sent.Body))
	require.NoError(t, err)
	require.Equal(t, url.Values{
		"payment_intent":               {p.intentID},
		"amount":                       {"1800"},
		"reason":                       {"duplicate"},
		"metadata[account_id]":         {f.account.String()},
		"metadata[order_id]":           {p.orderID.String()},
		"metadata[refund_id]":          {part.ID.String()},
		"metadata[idempotency_key_id]": {idempotency.KeyID(f.account, "the-first-part-of-it").String()},
	}, form)

	require.Equal(t, "exceeds 2500", outcomeOf(p.createRefund("more-than-what-is-left", `{"amount":2501}`)))
	require.Equal(t, "201", outcomeOf(p.createRefund("all-that-is-left-of-it", `{}`)))
	require.Equal(t, "not refundable, refunded", outcomeOf(p.createRefund("when-nothing-is-left-of-it", `{}`)))
	require.Equal(t, "not refundable, refunded", outcomeOf(p.createRefund("when-nothing-is-left-of-it", `{"amount":1}`)))
	require.Equal(t, "refunded 4300, succeeded 2500, succeeded 1800; 4300", p.summary())
	require.Equal(t, 3, f.count("SELECT count(*) FROM idempotency_keys"), "a rejected request does not use its key")
	checkRefundInvariants(t, f)
}

func TestRefund_orderNotPaid(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	require.Equal(t, "402 expired_card expired_card", outcomeOf(f.create("pm_card_chargeDeclinedExpiredCard")))
	pending := f.withKey(t, "an-order-in-progress")
	pending.interrupt(confirmEndpoint, visa)
	for key, outcome := range map[idempotency.Key]string{
		f.key:       "not refundable, payment_failed",
		pending.key: "not refundable, pending",
	} {
		order := &paidOrder{f, orderID(f.account, key), ""}
		require.Equal(t, outcome, outcomeOf(order.createRefund(oneRefund, `{}`)))
	}
	unknown := &paidOrder{f, uuid.New(), ""}
	_, err := unknown.createRefund(oneRefund, `{}`)
	require.ErrorIs(t, err, orders.ErrNotFound)
	require.Zero(t, f.count("SELECT count(*) FROM refunds"))
}

// Ten concurrent refunds, each sent twice, never refund more than was charged.
func TestRefund_concurrent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body     string
		made     int
		faults   []stripetest.Rule
		refunded int64
		rejected []string
	}{
		"parts":                     {`{"amount":1000}`, 4, nil, 4000, []string{"exceeds 300"}},
		"whole amount":              {`{}`, 1, nil, 4300, []string{"not refundable, paid", "not refundable, refunded"}},
		"parts, and responses lost": {`{"amount":1000}`, 4, []stripetest.Rule{{Fault: stripetest.CloseAfter, Endpoint: refundEndpoint, Times: 7}}, 4000, []string{"exceeds 300"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const racers = 10
			f := newFixture(t, options{connections: 8, concurrent: true})
			p := f.createPaid(visa)
			for _, rule := range test.faults {
				f.stripe.Inject(rule)
			}
			var all sync.WaitGroup
			outcomes := make([]string, 2*racers)
			for i := range outcomes {
				req := refundRequest(t, f.account, p.orderID, idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i/2)), test.body)
				all.Go(func() { outcomes[i] = outcomeOf(f.service.Refund(t.Context(), p.orderID, req)) })
			}
			all.Wait()
			for i, outcome := range outcomes {
				require.Contains(t, append(test.rejected, "201", "in progress"), outcome, "racer %d", i)
			}
			made := 0
			for i := range racers {
				outcome := outcomeOf(p.createRefund(idempotency.Key(fmt.Sprintf("one-of-ten-refunds-%d", i)), test.body))
				require.Contains(t, append(test.rejected, "201"), outcome)
				if outcome == "201" {
					made++
				}
			}
			require.Equal(t, test.made, made)
			require.Len(t, f.stripe.Refunds(), made)
			require.Equal(t, test.refunded, f.stripe.Charges()[0].Refunded)
			checkRefundInvariants(t, f)
		})
	}
}

// Both COMMITs have each kind of unknown outcome (R22).
func TestRefund_commitUnknown(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		for name, fault := range map[string]idempotencytest.Fault{
			"connection cut before": idempotencytest.CutBefore,
			"connection cut after":  idempotencytest.CutAfter,
			"session ended before":  idempotencytest.FatalBefore,
			"session ended after":   idempotencytest.FatalAfter,
			"not replicated":        idempotencytest.NotReplicated,
		} {
			t.Run(fmt.Sprintf("commit %d, %s", n, name), func(t *testing.T) {
				t.Parallel()
				proxy := idempotencytest.NewProxy(t)
				f := newFixture(t, options{configure: proxy.Configure})
				p := f.createPaid(visa)
				proxy.Strike(n, fault)
				result, err := p.createRefund(oneRefund, oneBody)
				require.True(t, proxy.Struck())
				if fault == idempotencytest.NotReplicated {
					require.ErrorIs(t, err, postgres.ErrUnavailable)
					result, err = p.createRefund(oneRefund, oneBody)
				}
				require.Equal(t, "201", outcomeOf(result, err))
				require.Len(t, f.stripe.Refunds(), 1)
				require.Equal(t, refunded, p.summary())
				checkRefundInvariants(t, f)
			})
		}
	}
}

// The completer resumes an abandoned refund with the amount that the first run stored.
func TestRefund_resumedByCompleter(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]stripetest.Rule{
		"refund not sent":            always(stripetest.RateLimit, refundEndpoint),
		"refund made, response lost": append(always(stripetest.CloseAfter, refundEndpoint), listUnavailable(1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			p := f.createPaid(visa)
			var injected []*stripetest.Injection
			for _, rule := range faults {
				injected = append(injected, f.stripe.Inject(rule))
			}
			require.Contains(t, []string{"unavailable 2s", "unknown 2s"}, outcomeOf(p.createRefund(oneRefund, `{}`)))
			require.Equal(t, "not refundable, paid", outcomeOf(p.createRefund("another-refund-meanwhile", `{"amount":1}`)), "the amount is reserved")
			for _, i := range injected {
				i.Release()
			}
			f.withKey(t, oneRefund).setLease(2 * lockTimeout)
			f.exec(`UPDATE idempotency_keys SET request_params = '{"amount":"all"}' WHERE operation = 'create_refund'`)
			f.ageLastRun(2 * grace)
			require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
			require.Equal(t, "refunded 4300, succeeded 4300; 4300", p.summary())
			checkRefundInvariants(t, f)
		})
	}
}

// A restore of the database lost the refund. The client's retry finds it at the
// provider, at any age (R5).
func TestRefund_rowsLostInRestore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	first, err := p.createRefund(oneRefund, oneBody)
	require.Equal(t, "201", outcomeOf(first, err))
	f.exec("DELETE FROM refunds")
	f.exec("DELETE FROM idempotency_keys WHERE operation = 'create_refund'")
	f.exec("DELETE FROM audit_records WHERE resource_type = 'refund'")
	f.exec("UPDATE orders SET amount_refunded = 0, status = 'paid'")
	f.stripe.Advance(48 * time.Hour)
	f.transport.reset()
	require.Equal(t, "201", outcomeOf(p.createRefund(oneRefund, oneBody)))
	require.Equal(t, "list 200", f.transport.calls())
	require.Equal(t, refunded, p.summary())
	checkRefundInvariants(t, f)
}

func TestListRefunds_pages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	one, other := f.createPaid(visa), f.withKey(t, "another-order-of-theirs").createPaid(visa)
	var newest []orders.Refund
	for i := range 5 {
		key := idempotency.Key(fmt.Sprintf("one-of-five-refunds-%d", i))
		require.Equal(t, "201", outcomeOf(one.createRefund(key, `{"amount":10}`)))
		newest = append([]orders.Refund{one.getRefund(key)}, newest...)
	}
	require.Equal(t, "201", outcomeOf(other.createRefund("a-refund-of-the-other", `{}`)))

	for follows, after := range map[int]uuid.UUID{0: uuid.Nil, 2: newest[1].ID, 5: newest[4].ID} {
		page, err := collect(f.service.ListRefunds(t.Context(), f.account, one.orderID, 2, after))
		require.NoError(t, err)
		require.Equal(t, newest[follows:][:min(2, 5-follows)], append([]orders.Refund{}, page...))
	}

	stranger := idempotencytest.Account(t, f.pool)
	_, err := collect(f.service.ListRefunds(t.Context(), stranger, one.orderID, 2, uuid.Nil))
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, err = f.service.GetRefund(t.Context(), stranger, one.orderID, newest[0].ID)
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, err = f.service.GetRefund(t.Context(), f.account, other.orderID, newest[0].ID)
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, err = f.service.Refund(t.Context(), one.orderID, refundRequest(t, stranger, one.orderID, "the-key-of-a-stranger", `{}`))
	require.ErrorIs(t, err, orders.ErrNotFound)
	_, err = collect(f.service.ListRefunds(t.Context(), f.account, other.orderID, 2, newest[0].ID))
	require.Equal(t, "invalid", outcomeOf(idempotency.Result{}, err))
}

// An operator ends a refund, but not with a failure while it may still be made.
func TestResolve_refund(t *testing.T) {
	t.Parallel()
	const idle = 11 * time.Minute
	lost := append(always(stripetest.CloseAfter, refundEndpoint), listUnavailable(1))
	for name, test := range map[string]struct {
		faults  []stripetest.Rule
		age     time.Duration // of the last run
		older   bool          // the provider's key has expired
		want    string
		summary string
	}{
		"made, response lost":           {faults: lost, want: "201", summary: "refunded 4300, succeeded 4300; 4300"},
		"not made, may be in flight":    {faults: always(stripetest.CloseBefore, refundEndpoint), want: "unknown 10m0s", summary: "paid 0, pending 4300; 0"},
		"not made, nothing in flight":   {faults: always(stripetest.CloseBefore, refundEndpoint), age: idle, want: "422 closed_by_operator", summary: "paid 0, failed 4300; 0"},
		"stored 500, effect may follow": {faults: once(stripetest.ErrorBefore, refundEndpoint), age: idle, want: "unknown 1h0m0s", summary: "paid 0, pending 4300; 0"},
		"stored 500, a day later":       {faults: once(stripetest.ErrorBefore, refundEndpoint), age: idle, older: true, want: "422 closed_by_operator", summary: "paid 0, failed 4300; 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			p := f.createPaid(visa)
			var injected []*stripetest.Injection
			for _, rule := range test.faults {
				injected = append(injected, f.stripe.Inject(rule))
			}
			require.Contains(t, []string{"unknown 1s", "unknown 2s", "unknown 1h0m0s"}, outcomeOf(p.createRefund(oneRefund, `{}`)))
			for _, i := range injected {
				i.Release()
			}
			f.ageLastRun(test.age)
			if test.older {
				f.expireProviderKeys()
			}
			resolve := func() (idempotency.Result, error) {
				return f.service.Resolve(t.Context(), f.account, idempotency.KeyID(f.account, oneRefund), action)
			}
			require.Equal(t, test.want, outcomeOf(resolve()))
			require.Equal(t, test.summary, p.summary())
			if test.want == "unknown 10m0s" {
				require.Equal(t, test.want, outcomeOf(resolve()), "the first resolve was a run, too")
			}
			if test.want == "422 closed_by_operator" {
				require.Equal(t, test.want, outcomeOf(p.createRefund(oneRefund, `{}`)), "the client's retry")
				require.Equal(t, "201", outcomeOf(p.createRefund("the-same-refund-again", `{}`)), "the amount is released")
			}
			if test.want[0] != 'u' {
				checkRefundInvariants(t, f)
			}
		})
	}
}

// A run that starts between resolve's lookup and its own run may have sent the refund.
func TestResolve_refundOfConcurrentRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	limit := f.stripe.Inject(always(stripetest.RateLimit, refundEndpoint)[0])
	require.Equal(t, "unavailable 2s", outcomeOf(p.createRefund(oneRefund, `{}`)))
	limit.Release()
	f.ageLastRun(time.Hour)
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: listRefundsEndpoint})
	done := make(chan string, 1)
	go func() { done <- outcomeOf(p.resumeRefund(oneRefund)) }()
	<-held.Reached()
	_, err := f.service.Resolve(t.Context(), f.account, idempotency.KeyID(f.account, oneRefund), action)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	held.Release()
	require.Equal(t, "201", <-done)
	checkRefundInvariants(t, f)
}

func TestHistory_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(pendingRefund)
	require.Equal(t, "201", outcomeOf(p.createRefund(oneRefund, oneBody)))
	history, err := orders.History(t.Context(), f.pool, f.account, oneRefund)
	require.NoError(t, err)
	require.Equal(t, f.getOrder(), history.Order)
	require.Equal(t, p.getRefund(oneRefund), *history.Refund)
	require.Equal(t, []string{"refund refund.created", "refund refund.pending"}, f.withKey(t, oneRefund).history())
	require.Equal(t, clientIP.String(), history.Records[1].ClientIP)
	require.JSONEq(t, fmt.Sprintf(`{"provider_refund_id":%q,"amount":1800,"currency":"usd"}`, *history.Refund.ProviderRefundID),
		string(history.Records[1].Data))
}
