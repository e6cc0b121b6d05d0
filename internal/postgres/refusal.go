package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// refusalPause is how long a pool opens no session after the server has refused one, because each
// attempt costs the server a process.
const refusalPause = time.Second

// pauseAfterRefusal lets attempts fail during the pause.
func pauseAfterRefusal(config *pgxpool.Config) {
	var refusedAt atomic.Int64
	connect, keep := config.BeforeConnect, config.ConnConfig.OnPgError
	config.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if time.Now().UnixNano()-refusedAt.Load() < int64(refusalPause) {
			return &pgconn.PgError{Code: TooManyConnections, Message: "the server has just refused a session"}
		}
		return connect(ctx, conn)
	}
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == TooManyConnections {
			refusedAt.Store(time.Now().UnixNano())
		}
		return keep(conn, err)
	}
}

// AwaitSession calls take, which takes a session of the pool. While the server accepts no further
// session, because of max_connections or the CONNECTION LIMIT of the role or of the database, it waits
// for a session that the pool has. By itself, pgxpool would fail although that session is soon idle again.
func AwaitSession(ctx context.Context, pool *pgxpool.Pool, take func() error) error {
	for {
		err := take()
		if SQLState(err) != TooManyConnections || pool.Stat().AcquiredConns()+pool.Stat().IdleConns() == 0 {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
