package engine_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

// The key is released although the run does not know that it was leased.
func TestTakeover_responseLost(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	f := newFixture(t, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // sends the text of statements
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &lossyConn{Conn: conn, statement: "attempt + 1", lost: &lost}, err
		}
	})
	req, op := f.request(), &threeSteps{}
	idempotencytest.PutKey(t, f.pool, req, op.Name(), paid)
	_, err := f.do(req, op)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.True(t, lost.Load())
	state := f.state(req)
	require.Equal(t, 2, state.Attempt, "the server has executed it")
	require.False(t, state.Leased)

	result := f.mustDo(req, op)
	require.Equal(t, 3, result.Attempt)
	require.EqualValues(t, 1, op.calls.Load())
}

// lossyConn breaks once, instead of returning the response to a statement.
type lossyConn struct {
	net.Conn
	statement string
	lost      *atomic.Bool
	broken    bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.statement)) && c.lost.CompareAndSwap(false, true) {
		c.broken = true
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.broken && err == nil {
		return 0, io.EOF
	}
	return n, err
}
