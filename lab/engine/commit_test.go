package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/lab/engine/proxytest"
)

func newProxiedFixture(t *testing.T, configure ...func(*pgxpool.Config)) (*fixture, *proxytest.Proxy) {
	t.Helper()
	proxy := proxytest.New(t)
	return newFixture(t, append(configure, proxy.Configure)...), proxy
}

// Whatever the session's end looks like, each effect is recorded once (R22), and what is finished is answered.
func TestCommit_lost(t *testing.T) {
	t.Parallel()
	f, proxy := newProxiedFixture(t)
	for name, fault := range map[string]proxytest.Fault{
		"cut before":   proxytest.CutBefore,
		"cut after":    proxytest.CutAfter,
		"fatal before": proxytest.FatalBefore,
		"fatal after":  proxytest.FatalAfter,
		"error after":  proxytest.ErrorAfter,
	} {
		for _, op := range []*threeSteps{{}, {before: read}} {
			for commit := 1; commit <= 3; commit++ {
				t.Run(fmt.Sprintf("%s COMMIT %d, reads first: %t", name, commit, op.before != nil), func(t *testing.T) {
					req := f.request()
					proxy.Strike(commit, fault)
					_, err := f.do(req, op)
					require.True(t, proxy.Struck())
					if commit == 3 && strings.HasSuffix(name, "after") {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, postgres.ErrUnavailable)
					}
					first := f.mustDo(req, op)
					require.Equal(t, onceEach, f.effects(req))
					again := f.mustDo(req, op)
					require.True(t, again.Replayed)
					require.Equal(t, first.Response, again.Response)
				})
			}
		}
	}
	require.Zero(t, proxy.Cancels())
}

// The fence rejects a transaction that reaches the server after its run has ended.
func TestCommit_arrivesAfterRelease(t *testing.T) {
	t.Parallel()
	for commit := 2; commit <= 3; commit++ {
		t.Run(fmt.Sprintf("COMMIT %d", commit), func(t *testing.T) {
			t.Parallel()
			f, proxy := newProxiedFixture(t, connections(2))
			req := f.request()
			proxy.Strike(commit, proxytest.HoldBatch)
			_, err := f.do(req, &threeSteps{})
			require.ErrorIs(t, err, postgres.ErrUnavailable)
			before := f.row(req)
			proxy.Release()
			require.Eventually(t, func() bool { return proxy.Held() == 0 }, waitFor, tick)
			require.Equal(t, before, f.row(req))
			f.mustDo(req, &threeSteps{})
			require.Equal(t, onceEach, f.effects(req))
		})
	}
}

// The outcome of a delayed COMMIT is unknown. It may be executed at any time, once.
func TestCommit_delayed(t *testing.T) {
	t.Parallel()
	for commit, at := range []string{"", string(reserved), string(paid)} {
		t.Run(fmt.Sprintf("COMMIT %d", commit+1), func(t *testing.T) {
			t.Parallel()
			f, proxy := newProxiedFixture(t, connections(2), sessionSetting("lock_timeout", "100"))
			req, op := f.request(), &threeSteps{}
			proxy.Strike(commit+1, proxytest.HoldCommit)
			result, err := f.do(req, op)
			require.ErrorIs(t, err, postgres.ErrUnavailable)
			require.NotErrorIs(t, err, idempotency.ErrInProgress)
			require.Zero(t, result.Response)
			if commit == 0 {
				require.Empty(t, f.row(req))
			} else {
				require.Equal(t, keyState{Point: at, Leased: true, Runs: 1}, f.state(req))
			}
			_, err = f.do(req, op)
			require.ErrorIs(t, err, idempotency.ErrInProgress)

			before := f.row(req)
			proxy.Release()
			require.Eventually(t, func() bool { return proxy.Held() == 0 }, waitFor, tick) // it has released its locks
			require.NotEqual(t, before, f.row(req))
			if commit < 2 {
				f.expireLease(req)
			}
			result = f.mustDo(req, op)
			require.Equal(t, 201, result.Response.Status)
			require.EqualValues(t, 2, op.calls.Load())
			require.Equal(t, onceEach, f.effects(req))
			require.Zero(t, proxy.Cancels())
		})
	}
}

// The key is released although the run does not know that it was leased.
func TestTakeover_responseLost(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	f := newFixture(t, func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // sends the text of statements
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &lossyConn{Conn: conn, statement: "runs + 1", lost: &lost}, err
		}
	})
	req, op := f.request(), &threeSteps{}
	idempotencytest.PutKey(t, f.pool, req, op.Name(), paid)
	_, err := f.do(req, op)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.True(t, lost.Load())
	state := f.state(req)
	require.Equal(t, 2, state.Runs, "the server has executed it")
	require.False(t, state.Leased)

	result := f.mustDo(req, op)
	require.Equal(t, 3, result.Runs)
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

// Behind a connection pooler, statements may be sent in another way.
func TestQueryExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
			req, op := f.request(), &threeSteps{before: read}
			f.engine.Register(op)
			op.pay = func(context.Context) error { return errNoResponse }
			_, err := f.do(req, op)
			require.ErrorIs(t, err, errNoResponse)
			op.pay = nil
			first, err := f.engine.Resume(t.Context(), req.AccountID, idempotency.KeyID(req.AccountID, req.Key))
			require.NoError(t, err)
			again := f.mustDo(req, op)
			require.Equal(t, first.Response, again.Response)
			require.Equal(t, onceEach, f.effects(req))

			lost := f.request()
			_, err = f.do(lost, &threeSteps{reserve: func(context.Context) error {
				f.update(lost, "lease_token = md5(lease_token::text)::uuid")
				return nil
			}})
			require.ErrorIs(t, err, idempotency.ErrLeaseLost)
			require.Equal(t, map[string]int{"created": 1}, f.effects(lost))

			if mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol {
				return // they cannot encode the arrays of the other statements, and the program rejects them
			}
			f.backgroundCommands(op)
		})
	}
}

func (f *fixture) backgroundCommands(op *threeSteps) {
	ctx := f.t.Context()
	req := f.request()
	idempotencytest.PutKey(f.t, f.pool, req, op.Name(), paid)
	f.update(req, "updated_at = now() - interval '1 hour'")
	unfinished, err := f.engine.Unfinished(ctx)
	require.NoError(f.t, err)
	require.NotEmpty(f.t, unfinished)
	found, err := f.engine.Find(ctx, []uuid.UUID{req.AccountID}, string(req.Key))
	require.NoError(f.t, err)
	require.Len(f.t, found, 1)
	completer := idempotency.NewCompleter(f.engine, idempotency.CompleterConfig{
		Grace: 5 * time.Minute, ActionTimeout: 23 * time.Hour, Batch: 40, Concurrency: 1,
	})
	pass, err := completer.RunOnce(ctx)
	require.NoError(f.t, err)
	require.Equal(f.t, idempotency.CompleterResult{Completed: 1}, pass)
	status, _, err := f.engine.Lookup(ctx, req.AccountID, req.Key)
	require.NoError(f.t, err)
	require.True(f.t, f.engine.AwaitChange(ctx, status), "the key is finished")
	_, err = idempotency.ReadStats(ctx, f.pool)
	require.NoError(f.t, err)
	require.Equal(f.t, 2, idempotencytest.Reap(f.t, f.pool))
}
