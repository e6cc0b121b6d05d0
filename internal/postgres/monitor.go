package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A process that can no longer take orders stays ready for at most the sum of both.
const (
	checkInterval = time.Second
	checkTimeout  = 1500 * time.Millisecond
)

const startTimeout = 5 * time.Second // bounds the first check, which opens the connections

var (
	errNotChecked = errors.New("the database was not checked yet")
	errReadOnly   = errors.New("the database server is read-only")
)

// Monitor checks each second whether orders can be stored (R30, ready to take an order): the server
// accepts writes, the pool is connected to it, and a check of the caller succeeds. It has a session
// of its own, so a busy pool does not delay it.
//
// Sessions that only read do not notice that their primary was demoted. So the monitor resets the
// pool when its own session is new and when its server is read-only, and no session of the pool is
// older than the monitor's.
type Monitor struct {
	logger  *slog.Logger
	pool    *pgxpool.Pool
	onReset func()
	opened  atomic.Int64 // number of the pool's sessions opened before its last reset
	result  atomic.Pointer[error]
}

// NewMonitor returns a Monitor that watches a configured pool.
func NewMonitor(pool *pgxpool.Pool, logger *slog.Logger) *Monitor {
	m := &Monitor{logger: logger, pool: pool, onReset: func() {}}
	m.result.Store(&errNotChecked)
	return m
}

// OnReset sets what discards the answers of the former server. It must be called before Start.
func (m *Monitor) OnReset(discard func()) { m.onReset = discard }

// Err returns nil, or why orders cannot be stored now.
func (m *Monitor) Err() error { return *m.result.Load() }

// Start checks once, and then until stop is called.
func (m *Monitor) Start(ctx context.Context, check func(context.Context, *pgxpool.Pool) error) (stop func(), err error) {
	config := m.pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	config.MaxConnLifetime = 1 << 62 // never, because a new session resets the pool
	configure := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		m.reset()
		return configure(ctx, conn)
	}
	session, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.run(ctx, session, check, startTimeout)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-time.After(checkInterval):
				m.run(ctx, session, check, checkTimeout)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-stopped
		session.Close()
	}, nil
}

func (m *Monitor) run(ctx context.Context, session *pgxpool.Pool, check func(context.Context, *pgxpool.Pool) error, timeout time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := m.checkServer(bounded, session)
	if err == nil {
		err = check(bounded, session)
	}
	if err == nil {
		err = m.checkPool(bounded)
	}
	switch wasReady := *m.result.Swap(&err) == nil; {
	case ctx.Err() != nil || wasReady == (err == nil): // stopped, or as before
	case err != nil:
		m.logger.WarnContext(ctx, "not ready: orders cannot be stored", "error", err)
	default:
		m.logger.InfoContext(ctx, "ready: orders can be stored")
	}
}

func (m *Monitor) checkServer(ctx context.Context, session *pgxpool.Pool) error {
	var readOnly bool
	if err := session.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&readOnly); err != nil {
		return Translate(err)
	}
	if readOnly {
		session.Reset()
		m.reset()
		return errReadOnly
	}
	return nil
}

func (m *Monitor) reset() {
	m.pool.Reset()
	m.opened.Store(m.pool.Stat().NewConnsCount())
	m.onReset()
}

// checkPool opens a session if none was opened since the last reset. Otherwise it takes none, because the
// pool may be busy.
func (m *Monitor) checkPool(ctx context.Context) error {
	stat := m.pool.Stat()
	if stat.NewConnsCount() > m.opened.Load() && stat.TotalConns() > stat.ConstructingConns() {
		return nil
	}
	conn, err := m.pool.Acquire(ctx)
	if err != nil {
		return Translate(err)
	}
	conn.Release()
	return nil
}
