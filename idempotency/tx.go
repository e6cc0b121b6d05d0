package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Tx is the transaction in which a step records its result. It is open only if the step reads;
// otherwise all of it is one round trip.
type Tx struct {
	store  *store
	lock   func(*pgx.Batch) // queues the claim or the fence, which locks the key's row
	conn   *pgxpool.Conn
	open   bool
	failed error // the first error of a statement
	queued pgx.Batch
}

// Queue adds a statement that is sent with COMMIT. An error of its callback ends the run, but does not roll the
// transaction back.
func (tx *Tx) Queue(query string, arguments ...any) *pgx.QueuedQuery {
	return tx.queued.Queue(query, arguments...)
}

// QueryRow executes a query now, before the queued statements.
func (tx *Tx) QueryRow(ctx context.Context, query string, arguments []any, dest ...any) error {
	if err := tx.begin(ctx); err != nil {
		return err
	}
	err := tx.conn.QueryRow(ctx, query, arguments...).Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return err // a result, not a failure
	}
	return tx.check(err)
}

// begin opens the transaction and locks the key's row.
func (tx *Tx) begin(ctx context.Context) error {
	if tx.open || tx.failed != nil {
		return tx.failed
	}
	batch, err := tx.batch(ctx)
	if err != nil {
		tx.failed = err
		return err
	}
	tx.lock(batch)
	if err := tx.send(ctx, batch); err != nil {
		return err
	}
	tx.open = true
	return nil
}

// commit sends the statement that fence queues, the queued ones and COMMIT in one round trip.
// Without an acknowledgement it returns errCommitUnknown (R22, three outcomes of COMMIT).
func (tx *Tx) commit(ctx context.Context, fence func(*pgx.Batch)) error {
	if tx.failed != nil {
		return tx.failed
	}
	batch, err := tx.batch(ctx)
	if err != nil {
		return err
	}
	fence(batch)
	batch.QueuedQueries = append(batch.QueuedQueries, tx.queued.QueuedQueries...)
	var committed bool
	batch.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errNotCommitted // a failed transaction returns ROLLBACK
		}
		committed = true
		return nil
	})

	postgres.ClearUnreplicated(tx.conn.Conn())
	err = tx.send(ctx, batch)
	switch {
	case postgres.Unreplicated(tx.conn.Conn()):
		return errNotReplicated
	case committed:
		return nil
	case commitMayHaveApplied(tx.conn.Conn(), err):
		return fmt.Errorf("%w: %w", errCommitUnknown, err)
	default:
		return err
	}
}

// batch begins the transaction unless it is open.
func (tx *Tx) batch(ctx context.Context) (*pgx.Batch, error) {
	batch := &pgx.Batch{}
	if tx.open {
		return batch, nil
	}
	var err error
	if tx.conn, err = tx.store.acquire(ctx); err != nil {
		return nil, err
	}
	batch.BeginTx(pgx.TxOptions{}) // READ COMMITTED, which postgres.CheckSession requires
	return batch, nil
}

// send ignores the end of ctx, which would only make the outcome of COMMIT unknown.
func (tx *Tx) send(ctx context.Context, batch *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	return tx.check(tx.conn.SendBatch(ctx, batch).Close())
}

func (tx *Tx) check(err error) error {
	err = translateOn(tx.conn.Conn(), err)
	if tx.failed == nil {
		tx.failed = err
	}
	return err
}

// close rolls back what is not committed.
func (tx *Tx) close(ctx context.Context) {
	if tx.conn == nil {
		return
	}
	if conn := tx.conn.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
		defer cancel()
		_, _ = conn.Exec(ctx, "ROLLBACK") // if it fails, Release closes the connection
	}
	tx.conn.Release()
}

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
