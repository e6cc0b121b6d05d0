package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
)

func (f *fixture) mustCreate(n int) (order uuid.UUID) {
	f.tb.Helper()
	key := fmt.Sprintf("an-order-of-the-cost-test-%d", n)
	result, err := f.create(key)
	require.NoError(f.tb, err)
	require.Equal(f.tb, 201, result.Response.Status)
	return idempotency.DeriveID("order", f.Account, idempotency.Key(key))
}

func (f *fixture) flushStatistics() {
	_, err := f.Pool.Exec(f.tb.Context(), "SELECT pg_stat_force_next_flush()")
	require.NoError(f.tb, err)
}

// A HOT update adds no index entry. Two updates cannot be HOT: the one that finishes the
// key and the one that records the intent.
func TestCost_indexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	f.mustCreate(0)
	f.flushStatistics()
	rows, _ := f.Pool.Query(t.Context(), `
SELECT format('%s: %s inserted, %s updated, %s HOT, %s indexes', relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, (
           SELECT count(*)
             FROM pg_index
            WHERE indrelid = relid
              AND indpred IS NULL
       ))
  FROM pg_stat_user_tables
 WHERE relname IN ('idempotency_keys', 'orders', 'audit_records', 'staged_jobs')
 ORDER BY relname`)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		"audit_records: 3 inserted, 0 updated, 0 HOT, 2 indexes",
		"idempotency_keys: 1 inserted, 2 updated, 1 HOT, 1 indexes",
		"orders: 1 inserted, 2 updated, 1 HOT, 2 indexes",
		"staged_jobs: 1 inserted, 0 updated, 0 HOT, 1 indexes",
	}, found, "partial indexes aside")
}

// The rows that an order reads do not grow, even if the plans date from empty tables.
func TestCost_newDatabase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	read := func() (rows int) {
		f.flushStatistics()
		require.NoError(t, f.Pool.QueryRow(t.Context(), `
SELECT coalesce(sum(idx_tup_read), 0) + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)
  FROM pg_stat_user_indexes`).Scan(&rows))
		return rows
	}
	create := func(first, n int) (rowsPerOrder int) {
		before := read()
		for i := range n {
			f.mustCreate(first + i)
		}
		return (read() - before) / n
	}
	create(0, 10) // from now on the plans are generic
	require.LessOrEqual(t, create(10, 40), 20)
}

// The first transaction of a refund needs three more round trips: it locks the order and
// then reads the remaining amount.
func TestCost_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	for n := range 2 { // the first refund prepares the statements
		order := f.mustCreate(n)
		f.wire.Reset()
		require.NoError(t, f.refund(order, fmt.Sprintf("a-refund-of-the-cost-test-%d", n)))
	}
	require.Equal(t, 2, f.wire.Commits())
	require.LessOrEqual(t, f.wire.RoundTrips(), 7)
}

// An event costs an order no round trip.
func TestCost_staging(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	measure := func(n int) (roundTrips, commits int) {
		f.mustCreate(n) // prepares the statements
		f.wire.Reset()
		f.mustCreate(n + 1)
		return f.wire.RoundTrips(), f.wire.Commits()
	}
	roundTrips, commits := measure(0)
	f.Orders.Events = true
	withEndpoint, commitsWithEndpoint := measure(2)
	require.Equal(t, []int{roundTrips, commits}, []int{withEndpoint, commitsWithEndpoint})
	var staged int
	require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT count(*) FROM staged_jobs WHERE kind = 'event'").Scan(&staged))
	require.Equal(t, 2, staged)
}

// The reading of the provider's events takes ten round trips, and an order that has changed seven more.
func TestCost_changes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	pass := func() int {
		f.wire.Reset()
		require.NoError(t, f.Changes.ReadList(t.Context()))
		_, err := f.Changes.Worker().RunOnce(t.Context())
		require.NoError(t, err)
		return f.wire.RoundTrips()
	}
	for n := range 2 { // the first refund prepares the statements
		require.NoError(t, f.refund(f.mustCreate(n), fmt.Sprintf("a-refund-of-the-cost-test-%d", n)))
		changed := pass()
		empty := pass()
		if n > 0 {
			require.Equal(t, []int{10, 17}, []int{empty, changed})
		}
	}
}

func (f *fixture) refund(order uuid.UUID, key string) error {
	req := f.request(key)
	req.Path, req.Params = "/v1/orders/"+order.String()+"/refunds", []byte(`{"amount":100}`)
	_, err := f.Refund(f.tb.Context(), req)
	return err
}

// The bounds are 8 % above the measured values: the race detector adds up to 6 %.
func TestAllocations(t *testing.T) {
	// Not parallel: allocations are counted for the whole process.
	const mostOfAnOrder, mostOfAReplay = 1430, 322
	buy := newOrderSender(t)
	buy(0)
	n := 0
	order := testing.AllocsPerRun(50, func() {
		n++
		buy(n)
	})
	replay := testing.AllocsPerRun(50, func() { buy(1) })
	t.Logf("an order: %.0f allocations, a replay: %.0f", order, replay)
	require.LessOrEqual(t, order, float64(mostOfAnOrder))
	require.LessOrEqual(t, replay, float64(mostOfAReplay))
}

func newOrderSender(t *testing.T) func(n int) {
	t.Helper()
	shop := orderstest.New(t, orderstest.Options{Payments: payments.Config{Transport: admission.SuspendDuring(&fastProvider{})}})
	router, apiKey := shop.API(t, api.Config{})
	order := []byte(`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":` + itemsJSON + `,"metadata":{"note":"blue"}}`)
	return func(n int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/orders", bytes.NewReader(order))
		require.NoError(t, err)
		r.RemoteAddr = "127.0.0.1:4711"
		r.Header.Set("Authorization", "Bearer "+apiKey)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", fmt.Sprintf("an-order-of-this-test-%d", n))
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		require.Equal(t, http.StatusCreated, w.Code)
	}
}

type fastProvider struct {
	mu   sync.Mutex
	last string // the intent that was created last
}

func (o *fastProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if path.Base(r.URL.Path) == "confirm" {
		o.last = strings.NewReplacer(`"requires_confirmation"`, `"succeeded"`, `"amount_received":0`, `"amount_received":5750`).Replace(o.last)
	} else {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		form, err := url.ParseQuery(string(sent))
		if err != nil {
			return nil, err
		}
		o.last = fmt.Sprintf(`{"id":"pi_%s","object":"payment_intent","amount":%s,"amount_received":0,"currency":%q,"status":"requires_confirmation",`+
			`"created":1767323045,"metadata":{"account_id":%q,"order_id":%q,"idempotency_key_id":%q}}`,
			form.Get("metadata[order_id]"), form.Get("amount"), form.Get("currency"),
			form.Get("metadata[account_id]"), form.Get("metadata[order_id]"), form.Get("metadata[idempotency_key_id]"))
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(o.last)),
		Request:    r,
	}, nil
}

const (
	createEndpoint  = "POST /v1/payment_intents"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"

	leaseDuration = time.Minute
	grace         = 5 * time.Minute
	retention     = 72 * time.Hour
)

// fixture is the service without HTTP, on an instrumented pool: what an order costs the
// database, and make -C lab bench-reaper and bench-waiters.
type fixture struct {
	*orderstest.Shop

	tb   testing.TB
	wire *idempotencytest.Wire
}

func newFixture(tb testing.TB, conns int32) *fixture {
	tb.Helper()
	wire := &idempotencytest.Wire{}
	return newFixtureOn(tb, wire, idempotencytest.NewPool(tb, wire.Configure, func(c *pgxpool.Config) { c.MaxConns = conns }))
}

func newFixtureOn(tb testing.TB, wire *idempotencytest.Wire, pool *pgxpool.Pool) *fixture {
	tb.Helper()
	shop := orderstest.New(tb, orderstest.Options{
		Pool:        pool,
		StepTimeout: 50 * time.Second, // less than a lease, and more than a step of BenchmarkWaiters
		Engine:      idempotency.Config{LeaseDuration: leaseDuration, Waiters: waiters},
	})
	return &fixture{shop, tb, wire}
}

const itemsJSON = `[
	{"sku":"TEA-ASSAM-250","description":"Assam tea, 250 g","quantity":2,"unit_amount":1250},
	{"sku":"MUG-BLUE","quantity":1,"unit_amount":1800}
]`

func (f *fixture) request(key string) idempotency.Request {
	f.tb.Helper()
	params, err := idempotency.Canonicalize(fmt.Appendf(nil,
		`{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":%s,"metadata":{"basket":"b-77"}}`, itemsJSON))
	require.NoError(f.tb, err)
	return idempotency.Request{
		AccountID: f.Account, Key: idempotency.Key(key), Method: http.MethodPost, Path: "/v1/orders", Params: params,
	}
}

func (f *fixture) create(key string) (idempotency.Result, error) {
	return f.Create(f.tb.Context(), f.request(key))
}
