package orders_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

const grace = 5 * time.Minute

// openAnHourAgo is a shop whose provider lives an hour ago, until anHourLater.
func openAnHourAgo(t *testing.T, terms terms) *shop {
	t.Helper()
	terms.clock = func() time.Time { return time.Now().Add(-time.Hour) }
	return openShop(t, terms)
}

// anHourLater nothing is under way any more.
func (s *shop) anHourLater() {
	s.t.Helper()
	s.stripe.Advance(time.Hour)
	s.exec(`
UPDATE idempotency_keys
   SET created_at  = created_at - interval '1 hour',
       last_run_at = last_run_at - interval '1 hour',
       locked_at   = locked_at - interval '1 hour',
       finished_at = finished_at - interval '1 hour'`)
	s.exec(`
UPDATE orders
   SET created_at = created_at - interval '1 hour',
       paid_at    = paid_at - interval '1 hour'`)
	s.exec("UPDATE refunds SET created_at = created_at - interval '1 hour'")
	s.wire.forget()
}

func (s *shop) reconcile(fix bool) orders.Report {
	s.t.Helper()
	report, err := s.service.Reconcile(s.t.Context(), orders.ReconcileConfig{Since: 48 * time.Hour, Grace: grace, Fix: fix})
	require.NoError(s.t, err)
	require.NotNil(s.t, report.Differences)
	require.Empty(s.t, s.wire.wrong())
	return report
}

// anyID and anyTime are what a test does not want to compare.
var (
	anyID   = regexp.MustCompile(`(pi|req|re)_[A-Z0-9]+|[0-9a-f]{8}-[0-9a-f-]{27}`)
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+Z`)
)

// found puts differences into words, and what their fixes came to behind an
// arrow.
func found(report orders.Report) []string {
	var list []string
	for _, d := range report.Differences {
		text := string(d.Kind) + ": " + d.Detail
		if d.Fix != "" {
			text += map[bool]string{true: " => ", false: " =/=> "}[d.Fixed] + d.Fix
		}
		list = append(list, anyTime.ReplaceAllString(anyID.ReplaceAllString(text, "ID"), "TIME"))
	}
	return list
}

// plant makes another intent of the shop's order behind its back.
func (s *shop) plant(card string, changes url.Values) answer {
	s.t.Helper()
	form := url.Values{
		"amount": {strconv.Itoa(basketAmount)}, "currency": {"usd"},
		"metadata[account_id]":                       {s.account.String()},
		"metadata[order_id]":                         {orderOf(s.account, s.key).String()},
		"metadata[idempotency_key_id]":               {idempotency.KeyID(s.account, s.key).String()},
		"automatic_payment_methods[enabled]":         {"true"},
		"automatic_payment_methods[allow_redirects]": {"never"},
	}
	if card != "" {
		form.Set("payment_method", card)
	}
	for name, values := range changes {
		form[name] = values
	}
	return s.behind("/v1/payment_intents", form)
}

// lose drops the rows of the shop's order, as a failover or a restore does.
func (s *shop) lose() {
	s.t.Helper()
	id := orderOf(s.account, s.key)
	s.exec("DELETE FROM staged_jobs WHERE args->>'order_id' = $1", id.String())
	s.exec("DELETE FROM audit_records WHERE resource_id = $1", id.String())
	s.exec("DELETE FROM orders WHERE id = $1", id)
	s.exec("DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(s.account, s.key))
}

func TestReconcile_differences(t *testing.T) {
	t.Parallel()
	for name, test := range differenceCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.fixed == nil {
				test.fixed = test.want
			}
			if test.left == nil {
				test.left = test.want
			}
			s := openAnHourAgo(t, terms{})
			test.plant(s)
			s.anHourLater()
			require.Equal(t, test.want, found(s.reconcile(false)))
			require.NotRegexp(t, "create|confirm|cancel", s.wire.said(), "nothing is done unless told")

			s.wire.forget()
			require.Equal(t, test.fixed, found(s.reconcile(true)))
			require.Equal(t, test.calls, s.wire.said())

			s.anHourLater()
			require.ElementsMatch(t, test.left, found(s.reconcile(false)))
			require.Equal(t, len(test.left) == 0, s.reconcile(true).Open() == 0)
		})
	}
}

// The same things are under way when they are young: nothing is said of them,
// unless the completer has done so before.
func TestReconcile_young(t *testing.T) {
	t.Parallel()
	for name, test := range differenceCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			test.plant(s)
			s.wire.forget()
			for _, d := range s.reconcile(true).Differences {
				require.Equal(t, orders.KindKeyNeedsReview, d.Kind)
			}
			require.Equal(t, "list 200", s.wire.said())
		})
	}
}

// What machines read is whole, and holds nothing that a client sent.
func TestReconcile_difference(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{})
	require.Equal(t, "201", say(s.buy(visa)))
	s.exec("UPDATE orders SET amount = 4200, currency = 'eur'")
	s.anHourLater()
	o := s.order()
	report := s.reconcile(false)
	require.Equal(t, []orders.Difference{{
		Kind:       orders.KindAmountDiffers,
		AccountID:  s.account,
		OrderID:    o.ID,
		KeyID:      idempotency.KeyID(s.account, s.key),
		IntentID:   *o.PaymentIntentID,
		Booked:     &orders.Money{Amount: 4200, Currency: "eur"},
		AtProvider: &orders.Money{Amount: basketAmount, Currency: "usd"},
		Detail:     "intent succeeded, order paid, client told 201",
	}}, report.Differences)
	require.Equal(t, 1, report.Open())
	require.Equal(t, 1, report.Intents)
	require.Equal(t, 1, report.Orders)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	require.NotContains(t, string(text), "ada@example.com")
	require.NotContains(t, string(text), "pm_")
}
