package idempotency_test

import (
	"context"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

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
