// Package postgres configures database sessions and classifies the driver's errors.
package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Queuer queues statements for one round trip. It is a [pgx.Batch], or the transaction of a
// step.
type Queuer interface {
	Queue(query string, arguments ...any) *pgx.QueuedQuery
}

// Collect returns the rows of a query. purpose begins its error.
func Collect[T any](
	ctx context.Context, pool *pgxpool.Pool, purpose string, scan pgx.RowToFunc[T], query string, arguments ...any,
) ([]T, error) {
	list, err := pgx.CollectRows(Query(ctx, pool, query, arguments...), scan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", purpose, Translate(err))
	}
	return list, nil
}

// Query sends a query on a session of the pool, see [AwaitSession]. The rows return its error.
func Query(ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) (rows pgx.Rows) {
	_ = AwaitSession(ctx, pool, func() (err error) {
		rows, err = pool.Query(ctx, query, arguments...) //nolint:sqlclosecheck // the caller closes them
		return err
	})
	return rows
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

// Now returns the database's time. Times of rows are compared with it, because the clocks of
// processes drift (R8, the database's clock).
func Now(ctx context.Context, pool *pgxpool.Pool) (time.Time, error) {
	var now time.Time
	if err := pool.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's time: %w", Translate(err))
	}
	return now.UTC(), nil
}

// NowIf returns the argument n with which "now() + $n::interval" is now() if set, and NULL otherwise.
// A CASE would be simpler, but Citus rejects now() within CASE in an UPDATE.
func NowIf(set bool) *time.Duration {
	if set {
		return new(time.Duration)
	}
	return nil
}

// CleanText returns at most limit characters of s, with "?" for what a text column cannot store.
func CleanText(s string, limit int) string {
	characters := []rune(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "?"), "?"))
	return string(characters[:min(len(characters), limit)])
}
