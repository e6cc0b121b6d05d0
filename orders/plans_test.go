package orders_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/payments/stripetest"
)

// large are the tables that grow with the orders.
var large = regexp.MustCompile(`Seq Scan on (idempotency_keys|orders|refunds|audit_records|staged_jobs)\b`)

// Whatever an order or a refund meets in its life, the statement finds it by an
// index, and PostgreSQL soon plans it no more. Only lists it plans each time, for
// their length.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.fillBooks(2000)
	s.pool.Reset() // that is not among the statements

	const often = 10
	for i := range often {
		part := s.with(t, idempotency.Key("an-order-for-its-plans-"+string(rune('a'+i))))
		sale := part.sell(visa)
		require.Equal(t, "201", say(part.buy(visa)), "again")
		refund := part.key + "-refund"
		require.Equal(t, "201", say(sale.giveBack(refund, `{"amount":100}`)))
		sale.refund(refund)
		_, _, err := s.service.ListRefunds(t.Context(), s.account, sale.order, 10, uuid.Nil)
		require.NoError(t, err)
		_, _, err = s.service.ListRefunds(t.Context(), s.account, sale.order, 10, refundOf(s.account, refund))
		require.NoError(t, err)
		_, _, err = s.service.List(t.Context(), s.account, 10, uuid.Nil)
		require.NoError(t, err)
		_, _, err = s.service.List(t.Context(), s.account, 10, sale.order)
		require.NoError(t, err)
		_, err = s.service.KeyStatus(t.Context(), s.account, part.key)
		require.NoError(t, err)
		part.history()
	}
	declined := s.with(t, "an-order-that-is-declined")
	require.Equal(t, "402 card_declined generic_decline", say(declined.buy(declinedCard)))
	saved := s.with(t, "an-order-under-the-next-key")
	s.stripe.Inject(once(stripetest.ErrorBefore, createEndpoint)[0])
	require.Equal(t, "201", say(saved.buy(visa)))
	resumed := s.with(t, "an-order-that-is-resumed")
	resumed.stopAt(confirmEndpoint, visa)
	require.Equal(t, "201", say(resumed.retry()))
	s.with(t, "an-order-that-is-abandoned").stopAt(createEndpoint, visa)
	_, err := anotherConnection(t, s.pool).Exec(t.Context(), "UPDATE idempotency_keys SET last_run_at = now() - $1::interval WHERE finished_at IS NULL", 2*grace)
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, s.complete())

	for _, plan := range idempotencytest.Plans(t, s.pool) {
		require.NotRegexp(t, large, plan.Text, plan.Statement)
		if plan.Custom+plan.Generic >= often && !strings.Contains(plan.Statement, "LIMIT $") {
			require.NotZero(t, plan.Generic, plan.Statement)
		}
	}
}

// fillBooks puts n orders of three days into the books, each with its key, its
// records, its receipt and a refund.
func (s *shop) fillBooks(n int) {
	s.t.Helper()
	(&metered{tb: s.t, pool: s.pool, account: s.account}).fill(n)
	s.exec(`
INSERT INTO audit_records (id, account_id, action, resource_type, resource_id)
SELECT gen_random_uuid(), account_id, 'order.paid', 'order', id::text
  FROM orders`)
	s.exec(`
INSERT INTO staged_jobs (id, account_id, kind, args)
SELECT gen_random_uuid(), account_id, 'receipt', '{}'
  FROM orders`)
	s.exec(`
INSERT INTO refunds (id, account_id, order_id, idempotency_key, amount, currency, status, provider_refund_id, created_at)
SELECT gen_random_uuid(), account_id, id, 'refund-' || idempotency_key, 100, 'usd', 'succeeded', 're_' || id, created_at
  FROM orders`)
	s.exec("ANALYZE")
}
