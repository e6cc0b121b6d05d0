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
// accepts writes, the pools are connected to it, and a check of the caller succeeds. It has a session
// of its own, so a busy pool does not delay it.
//
// Sessions that only read do not notice that their primary was demoted. So the monitor resets all
// pools when its own session is new and when its server is read-only, and no session of a pool is
// older than the monitor's.
type Monitor struct {
	logger *slog.Logger
	pools  []*monitoredPool
	result atomic.Pointer[error]
}

type monitoredPool struct {
	*pgxpool.Pool

	reset  func()
	opened atomic.Int64 // number of sessions opened before the last reset
}

// NewMonitor returns a Monitor that watches a configured pool.
func NewMonitor(pool *pgxpool.Pool, logger *slog.Logger) *Monitor {
	m := &Monitor{logger: logger}
	m.result.Store(&errNotChecked)
	m.Add(pool, pool.Reset)
	return m
}

// Add adds a pool and the function that resets it. It must be called before Start.
func (m *Monitor) Add(pool *pgxpool.Pool, reset func()) {
	m.pools = append(m.pools, &monitoredPool{Pool: pool, reset: reset})
}

// Err returns nil, or why orders cannot be stored now.
func (m *Monitor) Err() error { return *m.result.Load() }

// Start checks once, and then until stop is called.
func (m *Monitor) Start(ctx context.Context, check func(context.Context, *pgxpool.Pool) error) (stop func(), err error) {
	config := m.pools[0].Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	config.MaxConnLifetime = 1 << 62 // never, because a new session resets the pools
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
	for _, pool := range m.pools {
		if err == nil {
			err = pool.check(bounded)
		}
	}
	switch previous := *m.result.Swap(&err); {
	case ctx.Err() != nil: // stopped
	case err != nil && (previous == nil || previous == errNotChecked): //nolint:errorlint // identity
		m.logger.WarnContext(ctx, "not ready: orders cannot be stored", "error", err)
	case err == nil && previous != nil && previous != errNotChecked: //nolint:errorlint // identity
		m.logger.InfoContext(ctx, "ready again")
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
	for _, pool := range m.pools {
		pool.reset()
		pool.opened.Store(pool.Stat().NewConnsCount())
	}
}

// check opens a session if none was opened since the last reset. Otherwise it takes none, because the
// pool may be busy.
func (p *monitoredPool) check(ctx context.Context) error {
	stat := p.Stat()
	if stat.NewConnsCount() > p.opened.Load() && stat.TotalConns() > stat.ConstructingConns() {
		return nil
	}
	conn, err := p.Acquire(ctx)
	if err != nil {
		return Translate(err)
	}
	conn.Release()
	return nil
}
