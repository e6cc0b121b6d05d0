package main_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
	"example.com/orders-api/receipts"
)

var sequentialScan = regexp.MustCompile(`Seq Scan on (idempotency_keys|orders|refunds|audit_records|staged_jobs)\b`)

// emailScan is the search for an email address, which runs only if an operator gives one.
var emailScan = regexp.MustCompile(`One-Time Filter: .*'%@%'.*\n *->  Seq Scan on orders\b`)

type nowhere struct{}

func (nowhere) Send(context.Context, uuid.UUID, *mail.Msg) error { return nil }

// Every statement of orders, receipts and reconcile uses an index, and a generic plan. Lists, the
// audit records of a key and an operator's search are planned each time, because the plan depends
// on the limit and on the number of ids.
func TestPlans_useIndexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.fillTables(10_000)
	f.Pool.Reset() // drops the statements so far
	shop := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer shop.Close()
	f.Orders.Events = true
	logger := slog.New(slog.DiscardHandler)
	workers := []*jobs.Worker{
		events.NewWorker(f.Pool, events.Endpoint{URL: shop.URL, Transport: shop.Client().Transport}, logger),
		receipts.NewWorker(f.Pool, f.Orders.Receipt, nowhere{}, "shop@example.com", logger),
	}

	const often = 6 // PostgreSQL considers a generic plan from the sixth execution on
	for i := range often {
		order := f.mustCreate(i)
		require.NoError(t, f.refund(order, fmt.Sprintf("a-refund-for-its-plans-%d", i)))
		_, err := f.Refunds.List(t.Context(), f.Account, order, httpjson.Page{Limit: 10})
		require.NoError(t, err)
		for _, after := range []uuid.UUID{uuid.Nil, order} {
			_, err := f.Orders.List(t.Context(), f.Account, httpjson.Page{Limit: 10, After: after})
			require.NoError(t, err)
		}
		req := f.request(fmt.Sprintf("an-order-of-the-cost-test-%d", i))
		_, _, err = f.Engine.Lookup(t.Context(), f.Account, req.Key)
		require.NoError(t, err)
		_, err = audit.Records(t.Context(), f.Pool, f.Account, idempotency.KeyID(f.Account, req.Key), order)
		require.NoError(t, err)
		for _, accounts := range [][]uuid.UUID{{f.Account}, {f.Account, uuid.New(), uuid.New()}} {
			found, err := f.Engine.FindResources(t.Context(), accounts, order.String())
			require.NoError(t, err)
			require.Len(t, found, 1)
		}
		for _, worker := range workers {
			_, err := worker.RunOnce(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, f.Changes.ReadList(t.Context()))
		_, err = f.Changes.Worker().RunOnce(t.Context())
		require.NoError(t, err)
		_, err = reconcile.Unread(t.Context(), f.Pool)
		require.NoError(t, err)
		_, err = reconcile.CountUnansweredDisputes(t.Context(), f.Pool)
		require.NoError(t, err)
	}
	rejected := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: createEndpoint})
	_, err := f.create("an-order-that-is-resumed")
	require.Error(t, err)
	rejected.Release()
	_, err = f.create("an-order-that-is-resumed")
	require.NoError(t, err)
	_, err = jobs.ReadStats(t.Context(), f.Pool, receipts.Kind, events.Kind)
	require.NoError(t, err)
	_, err = f.Changes.Compare(t.Context(), reconcile.Options{Fix: true, Since: 2 * grace, Grace: grace})
	require.NoError(t, err)

	for _, plan := range labtest.Plans(t, f.Pool) {
		require.NotRegexp(t, sequentialScan, emailScan.ReplaceAllString(plan.Text, ""), plan.Statement)
		if plan.Custom+plan.Generic >= often && !plannedEachTime.MatchString(plan.Statement) {
			require.NotZero(t, plan.Generic, plan.Statement)
		}
	}
}

var plannedEachTime = regexp.MustCompile(`LIMIT \$|FROM audit_records|WITH named|run_at > now|= ANY\(\$`)

func (f *fixture) fillTables(n int) {
	f.tb.Helper()
	for _, statement := range []string{
		`
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint,
    recovery_point, lease_token, runs, updated_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'one-of-many-keys-' || i, 'create_order', 'POST', '/v1/orders', '{}', decode(repeat('01', 33), 'hex'),
       'finished', gen_random_uuid(), 1, at, at, at, 201, '{"Content-Type":"application/json"}', decode(repeat('01', 500), 'hex')
  FROM generate_series(1, $2::int) AS i,
       LATERAL (SELECT now() - interval '80 hours' + i * interval '1 millisecond') AS t (at)`, `
INSERT INTO orders (
    id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method,
    status, payment_intent_id, created_at, paid_at
)
SELECT gen_random_uuid(), account_id, idempotency_key, 'ada@example.com', 'usd', 4300, '[]', '{}', 'pm_card_visa',
       'paid', 'pi_' || id, created_at, finished_at
  FROM idempotency_keys
 WHERE account_id = $1
   AND $2 > 0`, `
INSERT INTO audit_records (id, account_id, action, resource_type, resource_id)
SELECT gen_random_uuid(), account_id, 'order.paid', 'order', id::text
  FROM orders
 WHERE account_id = $1
   AND $2 > 0`, `
INSERT INTO staged_jobs (id, account_id, kind, args, failed_at)
SELECT gen_random_uuid(), account_id, 'survey-' || (20 * random())::int, '{}', CASE WHEN random() < 0.5 THEN now() END
  FROM orders
 WHERE account_id = $1
   AND $2 > 0`, `
INSERT INTO refunds (id, account_id, order_id, idempotency_key, amount, currency, status, provider_refund_id, created_at)
SELECT gen_random_uuid(), account_id, id, 'refund-' || idempotency_key, 100, 'usd', 'succeeded', 're_' || id, created_at
  FROM orders
 WHERE account_id = $1
   AND $2 > 0`,
	} {
		_, err := f.Pool.Exec(f.tb.Context(), statement, f.Account, n)
		require.NoError(f.tb, err)
	}
	_, err := f.Pool.Exec(f.tb.Context(), "ANALYZE")
	require.NoError(f.tb, err)
}

func TestLookup_plan(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	_, apiKey, err := accounts.Create(t.Context(), pool, "test")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `
INSERT INTO api_keys (id, account_id, key_hash, prefix)
SELECT gen_random_uuid(), id, sha256(uuid_send(gen_random_uuid())), 'ok_many'
  FROM accounts,
       generate_series(1, 10000)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "ANALYZE api_keys")
	require.NoError(t, err)
	pool.Reset() // the plans are those of the statements that follow
	for range 10 {
		_, err := accounts.NewAuthenticator(pool, time.Now).Authenticate(t.Context(), apiKey)
		require.NoError(t, err)
	}
	var found int
	for _, plan := range labtest.Plans(t, pool) {
		if strings.Contains(plan.Statement, "key_hash") {
			require.Contains(t, plan.Text, "api_keys_key_hash_unique")
			found++
		}
	}
	require.Equal(t, 1, found)
}
