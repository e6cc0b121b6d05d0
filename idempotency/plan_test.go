package idempotency_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// Whatever a key meets in its life, the statement finds it by an index, whichever
// the arguments, and PostgreSQL soon plans it no more.
func TestPlans(t *testing.T) {
	t.Parallel()
	const often = 10
	op := &threeSteps{}
	n := newNight(newBench(t), op)
	n.fill(10_000, time.Hour)
	n.analyze()
	for range often {
		req := n.request()
		_, err := n.do(req, &readingSteps{}) // claim, fence, advance, finish
		require.NoError(t, err)
		replayed, err := n.do(req, &readingSteps{})
		require.NoError(t, err)
		require.True(t, replayed.Replayed)
		_, err = n.engine.Status(t.Context(), req.AccountID, idempotency.KeyID(req.AccountID, req.Key))
		require.NoError(t, err)
		n.abandon(op, idempotencytest.State{Point: paid}, 2*grace)
		require.Equal(t, idempotency.Pass{Completed: 1}, n.pass()) // take, takeover
		op.pay = func(context.Context, *idempotency.Run) error { return errNoAnswer }
		_, err = n.do(n.request(), op) // release
		require.ErrorIs(t, err, errNoAnswer)
		op.pay = nil
	}
	require.NoError(t, n.engine.Reopen(t.Context(), n.account, uuid.New()))
	n.stuck(100)
	n.bench.find(n.account, "nobody-uses-this-key")
	n.overdue()
	_, err := idempotency.ReadStats(t.Context(), n.pool)
	require.NoError(t, err)
	n.count()
	n.reap()
	for _, plan := range idempotencytest.Plans(t, n.pool) {
		require.NotContains(t, plan.Text, "Seq Scan on idempotency_keys", plan.Statement)
		if plan.Custom+plan.Generic >= often {
			require.NotZero(t, plan.Generic, plan.Statement)
		}
	}
}

// statements keeps what is sent to the database, so that a test can ask for the
// plans of exactly that.
type statements struct {
	mu       sync.Mutex
	list     []pgx.TraceQueryStartData
	answered func(n int) // if not nil, called behind the n-th statement since forget
}

func (s *statements) configure(config *pgxpool.Config) { config.ConnConfig.Tracer = s }

// TraceQueryStart is called before a statement is sent.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, data)
	return ctx
}

// TraceQueryEnd is called when its answer was read.
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {
	s.mu.Lock()
	n, answered := len(s.list), s.answered
	s.mu.Unlock()
	if answered != nil {
		answered(n)
	}
}

func (s *statements) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
}

// plan returns the plans of the statements since forget.
func (s *statements) plan(b *bench) string {
	b.t.Helper()
	s.mu.Lock()
	list := s.list
	s.mu.Unlock()
	require.NotEmpty(b.t, list)
	var plans []string
	for _, statement := range list {
		rows, err := b.pool.Query(b.t.Context(), "EXPLAIN "+statement.SQL, statement.Args...)
		require.NoError(b.t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(b.t, err)
		plans = append(plans, strings.Join(lines, "\n"))
	}
	return strings.Join(plans, "\n\n")
}
