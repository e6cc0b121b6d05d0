package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/internal/postgres"
)

// Marker is an [Operation] whose unfinished keys an operator can end. Mark queues what every later run
// reads before it acts. Such a run must not store a failure while the request can still succeed (R29, durable
// cancel; R23, cancel first).
type Marker interface {
	Mark(batch *pgx.Batch, key StoredKey, operator string)
}

// ErrNotResolvable means that the operation is no [Marker].
var ErrNotResolvable = errors.New("its operation cannot be resolved, only retried")

// Retry resumes an unfinished key now, before the completer does. record queues the audit record, which is
// committed first.
func (e *Engine) Retry(ctx context.Context, accountID, keyID uuid.UUID, record func(*pgx.Batch)) (Result, error) {
	return e.act(ctx, accountID, keyID, func(batch *pgx.Batch, _ StoredKey, _ Operation) error {
		record(batch)
		return nil
	})
}

// Resolve marks an unfinished key as one that this operator ends, and then resumes it as a retry does. The operator
// does not choose the response (R29, durable cancel). After an error of the run, later runs read the mark.
func (e *Engine) Resolve(ctx context.Context, accountID, keyID uuid.UUID, operator string, record func(*pgx.Batch)) (Result, error) {
	return e.act(ctx, accountID, keyID, func(batch *pgx.Batch, key StoredKey, op Operation) error {
		marker, ok := op.(Marker)
		if !ok {
			return ErrNotResolvable
		}
		record(batch)
		marker.Mark(batch, key, operator)
		return nil
	})
}

func (e *Engine) act(ctx context.Context, accountID, keyID uuid.UUID, write func(*pgx.Batch, StoredKey, Operation) error) (Result, error) {
	err := e.mark(ctx, accountID, keyID, write)
	if err == nil {
		return e.Resume(ctx, accountID, keyID)
	}
	if !errors.Is(err, postgres.ErrUnavailable) { // then the COMMIT may have been executed
		err = fmt.Errorf("nothing was changed: %w", err)
	}
	return Result{}, err
}

// mark commits the statements about an unfinished key that the function write queues, such as an audit record. It
// commits nothing if this version does not know the key (R18, newer versions), or if a run has moved the key to
// another recovery point since it was read. A run that holds the key goes on.
func (e *Engine) mark(ctx context.Context, accountID, keyID uuid.UUID, write func(*pgx.Batch, StoredKey, Operation) error) error {
	stored, err := e.store.find(ctx, accountID, keyID)
	if err == nil && stored.Point == Finished {
		err = fmt.Errorf("%w that is unfinished", ErrNotFound)
	}
	if err != nil {
		return err
	}
	op := e.operations[stored.Operation]
	if err := stored.check(op); err != nil {
		return err
	}
	tx := &Tx{store: e.store}
	defer tx.close(ctx)
	if err := write(&tx.queued, stored.StoredKey, op); err != nil {
		return err
	}
	return tx.commit(ctx, func(batch *pgx.Batch) { batch.Queue(markSQL, accountID, keyID, string(stored.Point)) })
}

// Finder is an [Operation] whose resources operators find by a name, such as an id or a reference.
type Finder interface {
	Find(ctx context.Context, accountIDs []uuid.UUID, name string) ([]Found, error)
}

// Found is a resource, and the key whose history it belongs to.
type Found struct {
	AccountID uuid.UUID
	Key       Key
	What      string // such as order 6f2a…, payment_failed
}

// FindResources returns the resources of the accounts with this name, of every [Finder].
func (e *Engine) FindResources(ctx context.Context, accountIDs []uuid.UUID, name string) (found []Found, err error) {
	for _, op := range e.operations {
		if finder, ok := op.(Finder); ok {
			some, err := finder.Find(ctx, accountIDs, name)
			if err != nil {
				return nil, err
			}
			found = append(found, some...)
		}
	}
	return found, nil
}
