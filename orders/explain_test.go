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

var sequentialScan = regexp.MustCompile(`Seq Scan on (idempotency_keys|orders|refunds|audit_records|staged_jobs)\b`)

// Every statement uses an index and a generic plan. Only lists are planned each time,
// because the plan depends on their limit.
func TestPlans_useIndexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.fillTables(1000)
	f.pool.Reset() // drops the statements so far

	const often = 6 // PostgreSQL considers a generic plan from the sixth execution on
	for i := range often {
		part := f.withKey(t, idempotency.Key("an-order-for-its-plans-"+string(rune('a'+i))))
		part.do(createPaid(visa))
		order := orderID(f.account, part.key)
		require.Equal(t, "201", outcomeOf(part.create(visa)), "again")
		refund := part.key + "-refund"
		require.Equal(t, "201", outcomeOf(part.refund(refund, `{"amount":100}`)))
		part.getRefund(refund)
		_, err := collect(f.service.ListRefunds(t.Context(), f.account, order, 10, uuid.Nil))
		require.NoError(t, err)
		_, err = collect(f.service.ListRefunds(t.Context(), f.account, order, 10, refundID(f.account, refund)))
		require.NoError(t, err)
		_, err = collect(f.service.List(t.Context(), f.account, 10, uuid.Nil))
		require.NoError(t, err)
		_, err = collect(f.service.List(t.Context(), f.account, 10, order))
		require.NoError(t, err)
		_, err = f.service.KeyStatus(t.Context(), f.account, part.key)
		require.NoError(t, err)
		part.history()
	}
	f.withKey(t, "an-order-that-is-declined").do(payWith(declinedCard), create("402 card_declined generic_decline"))
	f.withKey(t, "an-order-under-the-next-key").do(faultOnce(stripetest.ErrorBefore, createIntent), create("201"))
	f.withKey(t, "an-order-that-is-resumed").do(stopBefore(confirm), retryByOperator("201"))
	f.withKey(t, "an-order-that-is-abandoned").do(stopBefore(createIntent))
	_, err := newPool(t, f.pool).Exec(t.Context(), "UPDATE idempotency_keys SET last_run_at = now() - $1::interval WHERE finished_at IS NULL", 2*grace)
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())

	for _, plan := range idempotencytest.Plans(t, f.pool) {
		require.NotRegexp(t, sequentialScan, plan.Text, plan.Statement)
		if plan.Custom+plan.Generic >= often && !strings.Contains(plan.Statement, "LIMIT $") {
			require.NotZero(t, plan.Generic, plan.Statement)
		}
	}
}

func (f *fixture) fillTables(n int) {
	f.t.Helper()
	f.exec(`
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'one-of-many-keys-' || i, 'create_order', 'POST', '/v1/orders', $3::bytea, decode(repeat('01', 33), 'hex'),
       'finished', gen_random_uuid(), 1, at, at, at, 201, '{"Content-Type":"application/json"}', $3 || $3
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - interval '80 hours' + i * interval '1 millisecond') AS t (at)`,
		f.account, n, request(f.t, f.account, "any", visa).Params)
	f.exec(`
INSERT INTO orders (
    id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method,
    status, payment_intent_id, created_at, paid_at
)
SELECT gen_random_uuid(), account_id, idempotency_key, 'ada@example.com', 'usd', $2, $3, '{}', 'pm_card_visa',
       'paid', 'pi_' || id, created_at, finished_at
  FROM idempotency_keys
 WHERE account_id = $1`, f.account, orderAmount, itemsJSON)
	f.exec(`
INSERT INTO audit_records (id, account_id, action, resource_type, resource_id)
SELECT gen_random_uuid(), account_id, 'order.paid', 'order', id::text
  FROM orders`)
	f.exec(`
INSERT INTO staged_jobs (id, account_id, kind, args)
SELECT gen_random_uuid(), account_id, 'receipt', '{}'
  FROM orders`)
	f.exec(`
INSERT INTO refunds (id, account_id, order_id, idempotency_key, amount, currency, status, provider_refund_id, created_at)
SELECT gen_random_uuid(), account_id, id, 'refund-' || idempotency_key, 100, 'usd', 'succeeded', 're_' || id, created_at
  FROM orders`)
	f.exec("ANALYZE")
}
