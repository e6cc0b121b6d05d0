package orders_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

const (
	retention = 72 * time.Hour
	grace     = 5 * time.Minute
)

// idle makes every key's last run so much older.
func (s *shop) idle(age time.Duration) {
	s.t.Helper()
	s.exec("UPDATE idempotency_keys SET last_run_at = last_run_at - $1::interval", age)
}

func (s *shop) completer(concurrency int) *idempotency.Completer {
	s.t.Helper()
	c, err := idempotency.NewCompleter(s.engine, s.service.Operation,
		idempotency.CompleterConfig{Grace: grace, MaxAttempts: 3, Limit: 1000, Concurrency: concurrency})
	require.NoError(s.t, err)
	return c
}

// complete makes one pass of the completer.
func (s *shop) complete() idempotency.CompleterResult {
	s.t.Helper()
	pass, err := s.completer(1).RunOnce(s.t.Context())
	require.NoError(s.t, err)
	return pass
}

// reap makes one pass of the reaper, when all keys are past their retention.
func (s *shop) reap() int {
	s.t.Helper()
	s.exec("UPDATE idempotency_keys SET finished_at = finished_at - $1::interval", retention+time.Hour)
	r, err := idempotency.NewReaper(s.engine, idempotency.ReaperConfig{Retention: retention, Batch: 10})
	require.NoError(s.t, err)
	n, err := r.RunOnce(s.t.Context())
	require.NoError(s.t, err)
	return n
}

// The completer has no client: not its credentials, and not a request that
// today's rules would let through (B4).
func TestCompleter_needsNoClient(t *testing.T) {
	t.Parallel()
	for point, endpoint := range map[string]string{"order_created": createEndpoint, "charge_created": confirmEndpoint} {
		t.Run("from "+point, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			s.stopAt(endpoint, visa)
			s.exec(`
INSERT INTO api_keys (id, account_id, key_hash, prefix, revoked_at)
VALUES (gen_random_uuid(), $1, decode(repeat('00', 32), 'hex'), 'ok_revoked', now())`, s.account)
			s.exec(`UPDATE idempotency_keys SET request_params = '{"cents":"all of them"}'`)
			s.idle(2 * grace)
			require.Equal(t, idempotency.CompleterResult{Completed: 1}, s.complete())
			require.Equal(t, orders.StatusPaid, s.order().Status)
			require.EqualValues(t, basketAmount, s.order().Amount)
			s.checkFinal()
		})
	}
}

// Five completers, and every client at once, over orders that were left in every
// way: each is charged once (B2).
func TestCompleter_manyAtOnce(t *testing.T) {
	t.Parallel()
	const each, completers = 8, 5
	s := openShop(t, terms{conns: 8, crowd: true})
	ways := []func(*shop){
		func(s *shop) { s.stopAt(createEndpoint, visa) },
		func(s *shop) { s.stopAt(confirmEndpoint, visa) },
		func(s *shop) { // its run died
			s.stopAt(confirmEndpoint, visa)
			s.lease(2 * lockTimeout)
		},
		func(s *shop) { // the card was charged, and nobody heard of it
			lost := s.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: confirmEndpoint, Times: stripetest.Always})
			away := s.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: getEndpoint, Times: stripetest.Always})
			require.Equal(s.t, "unknown 2s", say(s.buy(visa)))
			lost.Release()
			away.Release()
		},
	}
	var parts []*shop
	for i := range each * len(ways) {
		part := s.with(t, idempotency.Key(fmt.Sprintf("one-of-many-abandoned-%d", i)))
		ways[i%len(ways)](part)
		parts = append(parts, part)
	}
	s.idle(2 * grace)

	var all sync.WaitGroup
	passes := make([]idempotency.CompleterResult, completers)
	for i := range completers {
		all.Go(func() {
			var err error
			if passes[i], err = s.completer(2).RunOnce(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	results, failures := make([]idempotency.Result, len(parts)), make([]error, len(parts))
	for i, part := range parts {
		req := request(t, part.account, part.key, visa)
		all.Go(func() { results[i], failures[i] = s.service.Create(t.Context(), req) })
	}
	all.Wait()

	for _, pass := range passes {
		require.Zero(t, pass.Failed+pass.NeedsReview)
	}
	for i, part := range parts {
		part.note(request(t, part.account, part.key, visa), results[i], failures[i])
		require.Contains(t, []string{"201", "in progress"}, say(results[i], failures[i]))
		require.Equal(t, "201", say(part.buy(visa)))
	}
	require.Len(t, s.stripe.Charges(), len(parts))
	checkBooks(t, s)
}

// A payment that the provider is still processing is not given up before the
// completer's last attempt, and then not lost.
func TestCompleter_processing(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	require.Equal(t, "unknown 30s", say(s.buy(stripetest.ProcessingCard)))
	for _, want := range []idempotency.CompleterResult{{Failed: 1}, {Failed: 1}, {NeedsReview: 1}, {}} {
		s.idle(24 * time.Hour)
		require.Equal(t, want, s.complete())
	}
	settle(true)(s)
	require.Equal(t, "201", say(s.resume()), "a webhook, or the client")
	require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE needs_review_at IS NULL"))
	s.checkFinal()
}

// What the reaper deletes is the key, and nothing of what it made.
func TestReaper_leavesTheOrder(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	require.Equal(t, "201", say(s.buy(visa)))
	abandoned := s.with(t, "abandoned-long-ago")
	abandoned.stopAt(confirmEndpoint, visa)
	abandoned.backDate(365 * 24 * time.Hour)
	order, history := s.order(), s.history()

	require.Equal(t, 1, s.reap())
	require.Equal(t, order, s.order())
	require.Equal(t, history, s.history())
	require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE id = $1", idempotency.KeyID(s.account, abandoned.key)))
	require.Equal(t, 1, s.count("SELECT count(*) FROM staged_jobs"), "the receipt is still to be sent")
	require.Equal(t, "201", say(abandoned.buy(visa)), "however late")

	s.wire.forget()
	require.Equal(t, "expired", say(s.buy(visa)), "and nothing is executed again (R17)")
	require.Empty(t, s.wire.said())
	checkBooks(t, s)
}

// The reaper meets an order that somebody works on, and a key that is being
// replayed (B5).
func TestReaper_besideLiveTraffic(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{conns: 4, crowd: true})
	const old = 50
	for i := range old {
		require.Equal(t, "201", say(s.with(t, idempotency.Key(fmt.Sprintf("one-of-the-old-keys-%d", i))).buy(visa)))
	}
	var all sync.WaitGroup
	for i := range old {
		replayed, fresh := request(t, s.account, idempotency.Key(fmt.Sprintf("one-of-the-old-keys-%d", i)), visa),
			request(t, s.account, idempotency.Key(fmt.Sprintf("one-of-the-new-keys-%d", i)), visa)
		all.Go(func() {
			if got := say(s.service.Create(t.Context(), replayed)); got != "201" && got != "expired" {
				t.Error(got)
			}
			if got := say(s.service.Create(t.Context(), fresh)); got != "201" {
				t.Error(got)
			}
		})
	}
	s.reap()
	all.Wait()
	require.Len(t, s.stripe.Charges(), 2*old)
	checkBooks(t, s)
}
