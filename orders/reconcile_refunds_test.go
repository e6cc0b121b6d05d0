package orders_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// What books and provider may not agree about where money went back, and what a
// fix does about it.
func TestReconcile_refunds(t *testing.T) {
	t.Parallel()
	settled := func(success bool) func(*sale) {
		return func(s *sale) { require.NoError(s.t, s.stripe.Settle(s.stripe.Refunds()[0].ID, success)) }
	}
	sql := func(statements ...string) func(*sale) {
		return func(s *sale) {
			for _, statement := range statements {
				s.exec(statement)
			}
		}
	}
	elsewhere := func(form url.Values) func(*sale) {
		return func(s *sale) { s.refundElsewhere(form) }
	}
	for name, test := range map[string]struct {
		card   string
		plant  func(*sale)
		want   []string
		fixed  []string // where a fix changes them
		stands string   // behind the fix
	}{
		"nothing": {plant: func(*sale) {}, stands: refunded},
		"still under way": {
			card: pendingRefund, plant: func(*sale) {}, stands: "partially_refunded 1800, pending 1800; 1800",
		},
		"refunded on the provider's pages": {
			plant:  elsewhere(url.Values{"amount": {"7"}}),
			want:   []string{"refund_not_booked: refund ID succeeded, not made here"},
			stands: "partially_refunded 1800, succeeded 1800; 1807",
		},
		"refunded there, which failed": {
			card: pendingRefund,
			plant: func(s *sale) {
				s.refundElsewhere(url.Values{"amount": {"7"}})
				require.NoError(s.t, s.stripe.Settle(s.stripe.Refunds()[1].ID, false))
			},
			stands: "partially_refunded 1800, pending 1800; 1800",
		},
		"refunded twice": {
			plant: func(s *sale) {
				s.refundElsewhere(url.Values{
					"amount": {"1800"}, "metadata[account_id]": {s.account.String()}, "metadata[refund_id]": {refundOf(s.account, oneRefund).String()},
				})
			},
			want:   []string{"refund_not_booked: refund ID succeeded, booked succeeded, which name ID"},
			stands: "partially_refunded 1800, succeeded 1800; 3600",
		},
		"lost in a restore": {
			plant: sql("DELETE FROM refunds", "DELETE FROM idempotency_keys WHERE operation = 'create_refund'",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'"),
			want:   []string{"refund_not_booked: refund ID succeeded, not in the books"},
			stands: "paid 0; 1800",
		},
		"its client was told that it failed": {
			plant: sql("UPDATE refunds SET status = 'failed', provider_refund_id = NULL",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'"),
			want:   []string{"refund_not_booked: refund ID succeeded, booked failed"},
			stands: "paid 0, failed 1800; 1800",
		},
		"the provider does not know it": {
			plant: sql("UPDATE refunds SET provider_refund_id = 're_NOWHERE'"),
			want: []string{
				"refund_not_booked: refund ID succeeded, booked succeeded, which name ID",
				"refund_not_made: booked succeeded, the provider does not know it",
			},
			stands: "partially_refunded 1800, succeeded 1800; 1800",
		},
		"nobody will make it": {
			plant: sql("UPDATE refunds SET provider_refund_id = NULL, status = 'pending', id = gen_random_uuid()"),
			want: []string{
				"refund_not_booked: refund ID succeeded, not in the books",
				"refund_not_made: booked pending, no unfinished key",
			},
			stands: "partially_refunded 1800, pending 1800; 1800",
		},
		"another amount": {
			plant:  sql("UPDATE refunds SET amount = 1700"),
			want:   []string{"refund_differs: refund ID succeeded, booked succeeded"},
			stands: "partially_refunded 1800, succeeded 1700; 1800",
		},
		"succeeded, and no event came": {
			card: pendingRefund, plant: settled(true),
			want:   []string{"refund_moved: refund ID succeeded, booked pending"},
			fixed:  []string{"refund_moved: refund ID succeeded, booked pending => followed: succeeded"},
			stands: refunded,
		},
		"failed, and no event came": {
			card: refundFail, plant: settled(false),
			want:   []string{"refund_moved: refund ID failed, booked succeeded"},
			fixed:  []string{"refund_moved: refund ID failed, booked succeeded => followed: failed"},
			stands: "paid 0, failed 1800; 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openAnHourAgo(t, terms{})
			card := visa
			if test.card != "" {
				card = test.card
			}
			sale := s.sell(card)
			require.Equal(t, "201", say(sale.giveBack(oneRefund, oneBody)))
			test.plant(sale)
			if test.fixed != nil {
				require.Empty(t, s.reconcile(false).Differences, "it is young: a run may be at it")
			}
			s.anHourLater()

			before := s.snapshot()
			requireFound(t, test.want, s.reconcile(false))
			require.Equal(t, before, s.snapshot())
			fixed := test.fixed
			if fixed == nil {
				fixed = test.want
			}
			requireFound(t, fixed, s.reconcile(true))
			require.Equal(t, test.stands, sale.standing())
			if test.fixed != nil {
				requireFound(t, nil, s.reconcile(false))
				checkRefunds(t, s)
			}
		})
	}
}

func requireFound(t *testing.T, want []string, report orders.Report) {
	t.Helper()
	require.Equal(t, len(want), len(report.Differences), "%v", found(report))
	if len(want) > 0 {
		require.Equal(t, want, found(report))
	}
}

// A refund that was interrupted is its key's: reconcile reports the key, and a
// fix resumes it.
func TestReconcile_stuckRefunds(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{})
	sale := s.sell(visa)
	limit := s.stripe.Inject(failing(stripetest.RateLimit, refundEndpoint)[0])
	require.Equal(t, "unavailable 2s", say(sale.giveBack(oneRefund, oneBody)))
	limit.Release()
	s.anHourLater()
	report := s.reconcile(false)
	require.Len(t, report.Differences, 1)
	require.Equal(t, orders.KindKeyStuck, report.Differences[0].Kind)
	require.Equal(t, refundOf(s.account, oneRefund), report.Differences[0].Refund)
	require.Zero(t, s.reconcile(true).Open())
	require.Equal(t, refunded, sale.standing())
	s.anHourLater()
	report = s.reconcile(false)
	require.Empty(t, report.Differences)
	require.Equal(t, 1, report.Refunds)
	checkRefunds(t, s)
}

// The books follow an event while the provider's list is read.
func TestReconcile_refundSettledMeanwhile(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{})
	sale := s.sell(pendingRefund)
	require.Equal(t, "201", say(sale.giveBack(oneRefund, oneBody)))
	s.anHourLater()
	s.wire.put(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if strings.HasSuffix(req.URL.Path, "/refunds") {
			s.wire.put(nil)
			require.NoError(t, s.stripe.Settle(s.stripe.Refunds()[0].ID, true))
			_, failed := sale.hearOfRefund("refund.updated")
			require.NoError(t, failed)
		}
		return resp, err
	})
	require.Empty(t, s.reconcile(false).Differences)
	require.Equal(t, refunded, sale.standing())
}

// A list that cannot be read to its end is no comparison.
func TestReconcile_refundsNotListed(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{})
	s.sell(visa)
	s.stripe.Inject(unlisted(0))
	_, err := s.service.Reconcile(t.Context(), orders.ReconcileConfig{Since: 2 * grace, Grace: grace})
	require.ErrorContains(t, err, "list the provider's refunds")
}

func TestDifferencesOfRefundsAsJSON(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{})
	sale := s.sell(visa)
	require.Equal(t, "201", say(sale.giveBack(oneRefund, oneBody)))
	s.exec("UPDATE refunds SET amount = 1700")
	s.anHourLater()
	text, err := json.Marshal(s.reconcile(false).Differences[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"refund_differs","account_id":"ID","order_id":"ID","key_id":"ID","intent_id":"ID","refund":"ID","refund_id":"ID",
		"booked":{"amount":1700,"currency":"usd"},"at_provider":{"amount":1800,"currency":"usd"},
		"detail":"refund ID succeeded, booked succeeded","fixed":false}`, anyID.ReplaceAllString(string(text), "ID"))
}
