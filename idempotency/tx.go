package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Tx is the transaction in which a step records its outcome. The engine begins,
// fences and commits it; a step only adds to it. Once a statement has failed the
// transaction cannot be committed any more, whatever the step returns.
type Tx struct {
	engine *Engine
	x      *execution
	conn   *pgxpool.Conn // nil until the first statement
	claim  *claim        // nil unless the key is new
	open   bool          // BEGIN and the claim or the fence went through
	failed error         // the first error of a statement
	queued pgx.Batch
}

// Queue adds a statement that is sent together with COMMIT, in the order of the
// calls: a step that only writes costs one round trip. If the statement fails
// so does the transaction. The signature is that of [pgx.Batch], for functions
// that join either; what came back can no longer stop the COMMIT behind it, so
// a step that needs to know uses Exec.
func (tx *Tx) Queue(query string, arguments ...any) *pgx.QueuedQuery {
	return tx.queued.Queue(query, arguments...)
}

// Exec runs a statement now, for a step that needs to know what it did.
// Statements that were queued have not run yet.
func (tx *Tx) Exec(ctx context.Context, query string, arguments ...any) (pgconn.CommandTag, error) {
	if err := tx.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := tx.conn.Exec(ctx, query, arguments...)
	return tag, tx.note(err)
}

// QueryRow runs a query now and returns its row, which must be scanned.
func (tx *Tx) QueryRow(ctx context.Context, query string, arguments ...any) pgx.Row {
	if err := tx.begin(ctx); err != nil {
		return row{tx: tx, err: err}
	}
	return row{tx: tx, row: tx.conn.QueryRow(ctx, query, arguments...)}
}

// row is a pgx.Row whose errors the transaction takes note of.
type row struct {
	tx  *Tx
	row pgx.Row
	err error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.row.Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return err // an answer, not a failure
	}
	return r.tx.note(err)
}

// note interprets the error of a statement, and keeps the first one.
func (tx *Tx) note(err error) error {
	err = translateOn(tx.conn.Conn(), err)
	if tx.failed == nil {
		tx.failed = err
	}
	return err
}

// claim is what a run that begins stores with its key.
type claim struct {
	req       Request
	operation string
	hash      []byte
}

// queueClaim queues the claim of a new key, which is then at the given recovery
// point.
func (tx *Tx) queueClaim(batch *pgx.Batch, since *time.Time, point RecoveryPoint) {
	c, x := tx.claim, tx.x
	queueFence(batch, since, claimSQL, []any{
		x.run.KeyID, x.run.AccountID, string(x.run.Key), c.operation, c.req.Method, c.req.Path, c.req.Params, c.hash,
		string(point), x.lease.token, x.run.CreatedAt,
	})
}

// begin opens the transaction for a step that needs it before COMMIT.
func (tx *Tx) begin(ctx context.Context) error {
	if tx.open || tx.failed != nil {
		return tx.failed
	}
	batch, err := tx.batch(ctx)
	if err != nil {
		tx.failed = err
		return err
	}
	var since time.Time
	if tx.claim != nil {
		tx.queueClaim(batch, &since, Started)
	} else {
		queueFence(batch, &since, fenceSQL, tx.x.held())
	}
	if err := tx.send(ctx, batch); err != nil {
		return err
	}
	tx.open = true
	if tx.claim != nil {
		tx.x.leased(1, tx.x.run.CreatedAt, since)
	}
	return nil
}

// commit moves the recovery point, runs what was queued and commits, all in one
// round trip. It returns errCommitUnknown when no answer came (R22).
func (tx *Tx) commit(ctx context.Context, outcome Outcome) error {
	if tx.failed != nil {
		return tx.failed
	}
	if tx.claim != nil && outcome.point == Finished {
		if err := tx.begin(ctx); err != nil { // there must be a row to finish
			return err
		}
	}
	claims := tx.claim != nil && !tx.open
	batch, err := tx.batch(ctx)
	if err != nil {
		return err
	}
	var since time.Time
	if claims {
		tx.queueClaim(batch, &since, outcome.point)
	} else if r := outcome.response; outcome.point == Finished {
		headers, err := json.Marshal(r.Headers)
		if err != nil {
			return err
		}
		queueFence(batch, &since, finishSQL, tx.x.held(), r.Status, string(headers), r.Body)
	} else {
		queueFence(batch, &since, advanceSQL, tx.x.held(), string(outcome.point))
	}
	batch.QueuedQueries = append(batch.QueuedQueries, tx.queued.QueuedQueries...)
	var committed bool
	batch.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errNotCommitted // ROLLBACK is what a failed transaction answers
		}
		committed = true
		return nil
	})

	postgres.ClearUnreplicated(tx.conn.Conn())
	tx.x.inDoubt = true
	sent := tx.engine.clock()
	err = tx.send(ctx, batch)
	switch {
	case postgres.Unreplicated(tx.conn.Conn()):
		return errNotReplicated
	case committed: // whatever happened to the connection afterwards
		tx.x.inDoubt = false
		if claims {
			tx.x.leased(1, tx.x.run.CreatedAt, since)
		}
		tx.x.moved(outcome, since)
		tx.x.renewed(sent)
		return nil
	case unanswered(tx.conn.Conn(), err):
		return fmt.Errorf("%w: %w", errCommitUnknown, err)
	default:
		tx.x.inDoubt = false
		return err
	}
}

// batch returns a batch that goes on with the transaction, or begins it.
func (tx *Tx) batch(ctx context.Context) (*pgx.Batch, error) {
	batch := &pgx.Batch{}
	if tx.open {
		return batch, nil
	}
	conn, err := tx.engine.acquireToRun(ctx)
	if err != nil {
		return nil, err
	}
	tx.conn = conn
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	return batch, nil
}

// send sends a batch and reads its answers. Its deadline is the engine's own:
// to give up earlier, because the step's context ends, would only turn a yes or
// no of COMMIT into unknown (R22).
func (tx *Tx) send(ctx context.Context, batch *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	return tx.note(tx.conn.SendBatch(ctx, batch).Close())
}

// close gives the connection back, rolling back what was not committed. A
// connection that cannot be cleaned is destroyed by the pool.
func (tx *Tx) close(ctx context.Context) {
	if tx.conn == nil {
		return
	}
	if conn := tx.conn.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			tx.engine.logger.WarnContext(ctx, "idempotency: rollback failed, connection dropped", "error", err)
		}
	}
	tx.engine.releaseFromRun(tx.conn)
	tx.conn = nil
}

// queueFence queues one of the statements that assert that the run holds the
// key. since becomes the moment from which it holds it.
func queueFence(batch *pgx.Batch, since *time.Time, query string, held []any, arguments ...any) {
	batch.Queue(query, append(held, arguments...)...).QueryRow(func(row pgx.Row) error { return scanFence(row, since) })
}
