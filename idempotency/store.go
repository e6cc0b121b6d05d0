package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// store executes single statements.
type store struct {
	pool          *pgxpool.Pool
	leaseDuration time.Duration
}

const (
	acquireTimeout  = 5 * time.Second  // for a pool connection, while the client waits
	databaseTimeout = 15 * time.Second // longer than statement_timeout, so that the server's error arrives first (R21, session timeouts)
)

func (s *store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	var conn *pgxpool.Conn
	err := postgres.AwaitSession(ctx, s.pool, func() (err error) {
		conn, err = s.pool.Acquire(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: no connection: %w", postgres.ErrUnavailable, err)
	}
	return conn, nil
}

func (s *store) withConn(ctx context.Context, statement func(ctx context.Context, conn *pgx.Conn) error) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	return translateOn(conn.Conn(), statement(ctx, conn.Conn()))
}

func (s *store) queryRow(ctx context.Context, query string, arguments []any, dest ...any) error {
	return s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, query, arguments...).Scan(dest...)
	})
}

func (s *store) exec(ctx context.Context, query string, arguments ...any) (changed bool, err error) {
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, query, arguments...)
		changed = tag.RowsAffected() > 0
		return err
	})
	return changed, err
}
