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

// All generic plans use an index, and PostgreSQL switches to them, except in the lists of
// the background commands, which are rare.
func TestPlans_useIndexes(t *testing.T) {
	t.Parallel()
	const executions = 10
	op := &threeSteps{}
	f := newCompleterFixture(newFixture(t), op)
	f.insertFinished(10_000, time.Hour)
	f.insertActionRequired(1_000)
	f.analyze()
	for range executions {
		req := f.request()
		_, err := f.do(req, readFirst(&threeSteps{})) // claim, fence, advance, finish
		require.NoError(t, err)
		replayed, err := f.do(req, &threeSteps{}) // find
		require.NoError(t, err)
		require.True(t, replayed.Replayed)
		_, err = f.engine.Status(t.Context(), req.AccountID, keyID(req))
		require.NoError(t, err)
		_, _, err = f.engine.Lookup(t.Context(), req.AccountID, f.request().Key) // find, expired
		require.ErrorIs(t, err, idempotency.ErrNotFound)
		f.putAbandoned(op, released, 2*grace)
		require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.pass()) // list, claim, takeover
		op.pay = func(context.Context, *idempotency.Run) error { return errNoResponse }
		_, err = f.do(f.request(), op) // release
		require.ErrorIs(t, err, errNoResponse)
		op.pay = nil
	}
	_, err := f.engine.PollWakes(t.Context(), f.account, uuid.New(), "turn")
	require.NoError(t, err)
	require.NoError(t, f.engine.Requeue(t.Context(), f.account, uuid.New(), f.operations))
	f.stuck(100)
	f.find(f.account, "an-unused-client-key")
	_, err = idempotency.ReadStats(t.Context(), f.pool)
	require.NoError(t, err)
	f.countExpired()
	f.insertFinished(1, retention+time.Hour)
	require.Equal(t, 1, f.reap()) // list, delete
	plans := idempotencytest.Plans(t, f.pool)
	var all string
	for _, plan := range plans {
		all += plan.Text
		require.NotContains(t, plan.Text, "Seq Scan on idempotency_keys", plan.Statement)
		if plan.Custom+plan.Generic >= executions && !strings.Contains(plan.Statement, "LIMIT") {
			require.NotZero(t, plan.Generic, plan.Statement)
		}
	}
	require.Greater(t, len(plans), 20)
	for _, index := range []string{"pkey", "unfinished_idx", "action_required_idx", "finished_idx"} {
		require.Contains(t, all, "Index Scan using idempotency_keys_"+index)
	}
}

// statements is a tracer that records what the pool sends to the database.
type statements struct {
	mu   sync.Mutex
	list []pgx.TraceQueryStartData
	hook func() // called once, when at least that many statements have ended
	at   int
}

func (s *statements) configure(config *pgxpool.Config) { config.ConnConfig.Tracer = s }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, data)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { s.end() }

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, pgx.TraceQueryStartData{SQL: data.SQL, Args: data.Args})
}

func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) { s.end() }

func (s *statements) end() {
	s.mu.Lock()
	var hook func()
	if len(s.list) >= s.at {
		hook, s.hook = s.hook, nil
	}
	s.mu.Unlock()
	if hook != nil {
		hook()
	}
}

// after calls hook once, after the n-th statement from now on.
func (s *statements) after(n int, hook func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.at, s.hook = nil, n, hook
}

func (s *statements) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
}

func (s *statements) containing(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, statement := range s.list {
		if strings.Contains(statement.SQL, text) {
			n++
		}
	}
	return n
}
