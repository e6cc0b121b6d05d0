package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

const (
	retention = 72 * time.Hour
	batch     = 100
)

func (b *bench) reaper() *idempotency.Reaper {
	b.t.Helper()
	r, err := idempotency.NewReaper(b.engine, idempotency.ReaperConfig{Retention: retention, Batch: batch})
	require.NoError(b.t, err)
	return r
}

// reap makes one pass and returns how many keys it deleted.
func (b *bench) reap() int {
	b.t.Helper()
	n, err := b.reaper().RunOnce(b.t.Context())
	require.NoError(b.t, err)
	return n
}

// count returns what a pass would delete.
func (b *bench) count() int {
	b.t.Helper()
	n, err := b.reaper().Count(b.t.Context())
	require.NoError(b.t, err)
	return n
}

func (b *bench) overdue() int {
	b.t.Helper()
	n, err := b.reaper().Overdue(b.t.Context())
	require.NoError(b.t, err)
	return n
}

func TestNewReaper_refusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	complete := idempotency.ReaperConfig{Retention: retention, Batch: batch}
	_, err := idempotency.NewReaper(b.engine, complete)
	require.NoError(t, err)

	_, err = idempotency.NewReaper(nil, complete)
	require.ErrorContains(t, err, "needs an engine")
	for name, test := range map[string]struct {
		change func(*idempotency.ReaperConfig)
		want   string
	}{
		"no retention":           {func(c *idempotency.ReaperConfig) { c.Retention = 0 }, "the retention of 0s must be more than the lease of 1m0s (R9)"},
		"less than none":         {func(c *idempotency.ReaperConfig) { c.Retention = -retention }, "must be more than the lease"},
		"a retention of a lease": {func(c *idempotency.ReaperConfig) { c.Retention = lockTimeout }, "must be more than the lease"},
		"no keys":                {func(c *idempotency.ReaperConfig) { c.Batch = 0 }, "must be positive"},
		"less than no keys":      {func(c *idempotency.ReaperConfig) { c.Batch = -1 }, "must be positive"},
	} {
		t.Run(name, func(t *testing.T) {
			config := complete
			test.change(&config)
			_, err := idempotency.NewReaper(b.engine, config)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// Finished keys past their retention go, and nothing else does, whatever its age
// (R16).
func TestReaper_whatItDeletes(t *testing.T) {
	t.Parallel()
	const ancient = "last_run_at = now() - interval '9 years', created_at = now() - interval '9 years'"
	tests := []struct {
		name  string
		state idempotencytest.State
		set   string
		gone  bool
	}{
		{
			name: "finished a moment longer than the retention ago", state: idempotencytest.State{Point: idempotency.Finished},
			set: "finished_at = now() - interval '72 hours 1 second'", gone: true,
		},
		{
			name: "finished years ago", state: idempotencytest.State{Point: idempotency.Finished},
			set: "finished_at = now() - interval '9 years'", gone: true,
		},
		{
			name: "finished with a failure", state: idempotencytest.State{Point: idempotency.Finished, Response: idempotency.Response{Status: 402}},
			set: "finished_at = now() - interval '73 hours'", gone: true,
		},

		{name: "finished just now", state: idempotencytest.State{Point: idempotency.Finished}},
		{name: "finished just now, begun years ago", state: idempotencytest.State{Point: idempotency.Finished}, set: ancient},
		{
			name: "finished not quite long enough ago", state: idempotencytest.State{Point: idempotency.Finished},
			set: "finished_at = now() - interval '71 hours 59 minutes'",
		},
		{name: "unfinished", state: idempotencytest.State{Point: paid}},
		{name: "unfinished for years", state: idempotencytest.State{Point: paid}, set: ancient},
		{name: "at started for years", set: ancient},
		{name: "leased for years", state: idempotencytest.State{Point: paid, Leased: true, LeaseAge: 9 * 365 * 24 * time.Hour}, set: ancient},
		{name: "in need of review for years", state: idempotencytest.State{Point: paid}, set: ancient + ", needs_review_at = now() - interval '8 years'"},
	}
	b := newBench(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req := b.request()
			b.put(req, &threeSteps{}, test.state)
			if test.set != "" {
				b.set(req, test.set)
			}
			before := b.row(req)
			if test.gone {
				require.Equal(t, 1, b.count())
				require.Equal(t, before, b.row(req), "counting deletes nothing")
				require.Equal(t, 1, b.reap())
				require.Empty(t, b.row(req))
				return
			}
			require.Zero(t, b.count())
			require.Zero(t, b.reap())
			require.Equal(t, before, b.row(req))
		})
	}
	require.Equal(t, 4, b.overdue(), "unfinished for longer than the retention")
	b.requireIdle()
}

// What is past its retention goes batch by batch, each in a transaction of its
// own, found by an index.
func TestReaper_batches(t *testing.T) {
	t.Parallel()
	statements := &statements{}
	b := newBench(t, statements.configure)
	b.fill(5*batch+7, retention+time.Hour) // all of them in that hour
	b.fill(10_000, retention-time.Hour)
	b.analyze()
	b.reap() // the plan is made for what is there
	require.Zero(t, b.count())
	require.Equal(t, 10_000, b.keys("true"))

	b.fill(5*batch+7, retention+time.Hour)
	statements.forget()
	before := b.transactions()
	require.Equal(t, 5*batch+7, b.reap())
	require.Len(t, statements.list, 6+1, "with the one that asks for the number of transactions")
	require.GreaterOrEqual(t, b.transactions()-before, 6)
	require.Contains(t, statements.plan(b), "Index Scan using idempotency_keys_finished_idx")

	b.fill(2*batch, retention+time.Hour)
	statements.forget()
	require.Equal(t, 2*batch, b.reap())
	require.Len(t, statements.list, 3, "a last batch that is full may not be the last")
}

// transactions returns how many transactions have changed something.
func (b *bench) transactions() int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "SELECT txid_current()").Scan(&n))
	return n
}

// A row that another session has locked is passed over, not waited for: it goes
// the next time.
func TestReaper_rowsLocked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fill(3*batch, retention+time.Hour)
	unlock := b.other("SELECT FROM idempotency_keys ORDER BY finished_at LIMIT 150 FOR KEY SHARE")
	require.Equal(t, 150, b.reap())
	require.Equal(t, 150, b.count())
	unlock()
	require.Equal(t, 150, b.reap())
	require.Zero(t, b.keys("true"))
}

// Reapers that run at once share the work.
func TestReaper_manyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, connections(4))
	b.fill(10*batch, retention+time.Hour)
	deleted := make(chan int)
	for range 4 {
		go func() {
			n, err := b.reaper().RunOnce(t.Context())
			if err != nil {
				t.Error(err)
			}
			deleted <- n
		}()
	}
	total := 0
	for range 4 {
		total += <-deleted
	}
	require.Equal(t, 10*batch, total)
	require.Zero(t, b.keys("true"))
}

// A pass that is told to stop does so between two batches.
func TestReaper_stopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	statements := &statements{}
	b := newBench(t, statements.configure)
	b.fill(5*batch, retention+time.Hour)
	statements.forget()
	statements.answered = func(n int) {
		if n == 2 {
			stop()
		}
	}
	deleted, err := b.reaper().RunOnce(ctx)
	require.NoError(t, err)
	require.Equal(t, 2*batch, deleted)
	require.Equal(t, 3*batch, b.keys("true"))

	deleted, err = b.reaper().RunOnce(ctx)
	require.NoError(t, err)
	require.Zero(t, deleted)
}

func TestReaper_cannotDelete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pool.Close()
	_, err := b.reaper().RunOnce(t.Context())
	require.ErrorContains(t, err, "reap keys: ")
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	_, err = b.reaper().Count(t.Context())
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	_, err = b.reaper().Overdue(t.Context())
	require.ErrorIs(t, err, postgres.ErrUnavailable)
}

// Asking for what is overdue does not read what is finished.
func TestReaper_overdueByIndex(t *testing.T) {
	t.Parallel()
	statements := &statements{}
	b := newBench(t, statements.configure)
	b.fill(10_000, time.Hour)
	b.analyze()
	statements.forget()
	require.Zero(t, b.overdue())
	require.NotContains(t, statements.plan(b), "Seq Scan on idempotency_keys")
}
