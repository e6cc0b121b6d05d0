package main_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

// BenchmarkReap compares the latency of orders at a constant rate with and without a
// reaper that deletes a million keys.
func BenchmarkReap(b *testing.B) {
	const (
		keys  = 1_000_000
		batch = 50 // as in orders reaper
		every = 10 * time.Millisecond
	)
	for b.Loop() {
		f := newFixture(b, 8)
		f.fill(keys)
		f.createSteadily(within(b, 5*time.Second), every) // prepares the statements
		without := f.createSteadily(within(b, time.Minute), every)

		engine := f.newEngine()
		ctx, done := context.WithCancel(b.Context())
		start := time.Now()
		go func() {
			defer done()
			deleted, err := engine.Reap(b.Context(), retention, batch)
			if err != nil || deleted != keys {
				b.Errorf("%d keys deleted, error: %v", deleted, err)
			}
		}()
		with := f.createSteadily(ctx, every)

		b.ReportMetric(keys/time.Since(start).Seconds(), "keys/s")
		b.ReportMetric(milliseconds(without, 99), "p99-ms-without")
		b.ReportMetric(milliseconds(with, 99), "p99-ms-with")
		b.ReportMetric(milliseconds(with, 99)/milliseconds(without, 99), "p99-ratio")
		for name, times := range map[string][]time.Duration{"without": without, "with": with} {
			b.Logf("%s: %d orders, p50 %.1f ms, p99.9 %.1f ms", name, len(times), milliseconds(times, 50), milliseconds(times, 99.9))
		}
	}
}

func within(b *testing.B, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	b.Cleanup(cancel)
	return ctx
}

// fill inserts paid orders of typical size, with finished keys that are past their
// retention.
func (f *fixture) fill(n int) {
	f.tb.Helper()
	pool, err := pgxpool.New(f.tb.Context(), dbtest.URL(f.Pool)) // without the timeouts
	require.NoError(f.tb, err)
	defer pool.Close()
	for _, step := range []struct {
		statement string
		arguments []any
	}{
		{
			`
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint,
    recovery_point, lease_token, runs, updated_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'of-a-million-keys-' || i, 'create_order', 'POST', '/v1/orders', $3::bytea, decode(repeat('01', 33), 'hex'),
       'finished', gen_random_uuid(), 1, at, at, at, 201, '{"Content-Type":"application/json","Location":"/v1/orders/00000000-0000-8000-8000-000000000000"}', $3 || $3
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - interval '80 hours' + i * interval '1 millisecond') AS t (at)`,
			[]any{f.Account, n, f.request("any").Params},
		},
		{`
INSERT INTO orders (
    id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method,
    status, payment_intent_id, created_at, paid_at
)
SELECT gen_random_uuid(), account_id, idempotency_key, 'ada@example.com', 'usd', 4300, $2, '{"basket":"b-77"}', 'pm_card_visa',
       'paid', 'pi_' || id, created_at, finished_at
  FROM idempotency_keys
 WHERE account_id = $1`, []any{f.Account, itemsJSON}},
		{"VACUUM ANALYZE", nil},
		{"CHECKPOINT", nil},
	} {
		_, err := pool.Exec(f.tb.Context(), step.statement, step.arguments...)
		require.NoError(f.tb, err)
	}
}

// newEngine returns an engine with its own pool, as in another process.
func (f *fixture) newEngine() *idempotency.Engine {
	f.tb.Helper()
	config, err := pgxpool.ParseConfig(dbtest.URL(f.Pool))
	require.NoError(f.tb, err)
	postgres.Configure(config)
	pool, err := pgxpool.NewWithConfig(f.tb.Context(), config)
	require.NoError(f.tb, err)
	f.tb.Cleanup(pool.Close)
	engine, err := idempotency.New(pool, idempotency.Config{LeaseDuration: leaseDuration, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f.tb, err)
	return engine
}

// createSteadily creates an order at each interval, independent of orders in flight. It
// returns the sorted latencies, counted from the due time.
func (f *fixture) createSteadily(ctx context.Context, every time.Duration) []time.Duration {
	f.tb.Helper()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var mu sync.Mutex
	var times []time.Duration
	var running sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case due := <-ticker.C:
			running.Go(func() {
				if _, err := f.create("order-due-at-" + due.Format(time.RFC3339Nano)); err != nil {
					f.tb.Error(err)
				}
				latency := time.Since(due)
				mu.Lock()
				defer mu.Unlock()
				times = append(times, latency)
			})
		case <-ctx.Done():
		}
	}
	running.Wait()
	slices.Sort(times)
	return times
}

func milliseconds(sorted []time.Duration, percentile float64) float64 {
	i := min(int(float64(len(sorted))*percentile/100), len(sorted)-1)
	return float64(sorted[i]) / float64(time.Millisecond)
}

const waiters = 200

// BenchmarkWaiters compares the time of an order with and without many requests that wait
// for one key of another account. The two cases alternate, so that other load affects
// both.
func BenchmarkWaiters(b *testing.B) {
	const rounds = 50
	for b.Loop() {
		f := newFixture(b, 8)
		clients := newWaitingClients(f)
		f.measure("warm") // prepares the statements
		var with, without []float64
		for round := range rounds {
			idle := func() { without = append(without, f.measure(fmt.Sprintf("without-%d", round))) }
			waiting := func() {
				finish := clients.start(fmt.Sprintf("a-key-with-many-waiters-%d", round))
				with = append(with, f.measure(fmt.Sprintf("with-%d", round)))
				finish()
			}
			phases := []func(){idle, waiting}
			if round%2 == 1 {
				slices.Reverse(phases)
			}
			for _, phase := range phases {
				phase()
			}
		}
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = with[i] / without[i]
		}
		b.ReportMetric(median(without), "ms/order-without")
		b.ReportMetric(median(with), "ms/order-with")
		b.ReportMetric(median(ratios), "ratio")
		b.Logf("ratios of %d rounds, sorted: %.3f", rounds, ratios) // median has sorted them
		require.LessOrEqual(b, median(ratios), 1.1)
	}
}

// measure creates 200 orders, four at a time, and returns the milliseconds per order.
func (f *fixture) measure(name string) float64 {
	f.tb.Helper()
	const orders, clients = 200, 4
	var group errgroup.Group
	runtime.GC() // excludes the garbage of the start
	start := time.Now()
	for c := range clients {
		group.Go(func() error {
			for i := range orders / clients {
				if _, err := f.create(fmt.Sprintf("a-measured-order-%s-%d-%d", name, c, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(f.tb, group.Wait())
	return float64(time.Since(start)) / float64(time.Millisecond) * clients / orders
}

type waitingClients struct{ fixture }

func newWaitingClients(f *fixture) *waitingClients {
	c := &waitingClients{*f}
	c.Account = idempotencytest.Account(f.tb, f.Pool)
	return c
}

// start makes the clients wait for an order whose provider call is held. finish releases
// the call and checks that all clients get the same response.
func (c *waitingClients) start(key string) (finish func()) {
	c.tb.Helper()
	req := c.request(key)
	held := c.Stripe.Inject(stripetest.Rule{
		Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint, OrderID: idempotency.DeriveID("order", c.Account, req.Key).String(),
	})
	bodies := make([]string, waiters+1)
	var group errgroup.Group
	var waiting sync.WaitGroup
	send := func(i int, wait func()) {
		group.Go(func() error {
			for {
				result, err := c.Create(context.WithoutCancel(c.tb.Context()), req)
				wait()
				if !errors.Is(err, idempotency.ErrInProgress) {
					bodies[i] = string(result.Response.Body)
					return err
				}
				c.Engine.AwaitTurn(c.tb.Context(), c.Account, result.KeyID)
			}
		})
	}
	send(waiters, func() {})
	<-held.Reached()
	waiting.Add(waiters)
	for i := range waiters {
		send(i, sync.OnceFunc(waiting.Done))
	}
	waiting.Wait()
	return func() {
		held.Release()
		require.NoError(c.tb, group.Wait())
		require.Len(c.tb, slices.Compact(bodies), 1)
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
