package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Engine executes operations under idempotency keys.
type Engine struct {
	config     Config
	store      *store
	waiters    waiters
	operations map[string]Operation // by name
}

// Config configures an [Engine]. All fields but Waiters are required.
type Config struct {
	LeaseDuration time.Duration    // how long a lease lasts after each commit
	Clock         func() time.Time // time.Now
	Waiters       int              // how many requests may wait for a key at once
	Logger        *slog.Logger
}

// New returns an engine on pool, which must be configured by [postgres.Configure].
func New(pool *pgxpool.Pool, config Config) (*Engine, error) {
	if !postgres.IsConfigured(pool.Config()) {
		return nil, errors.New("idempotency: the pool was not made with postgres.Configure")
	}
	return &Engine{config, &store{pool, config.LeaseDuration}, newWaiters(config.Waiters), map[string]Operation{}}, nil
}

// Register adds operations whose unfinished keys this program can resume. It must not be called while the
// engine is used. It panics if a name is registered twice, because a name selects what continues a key.
func (e *Engine) Register(operations ...Operation) {
	for _, op := range operations {
		if e.operations[op.Name()] != nil {
			panic("idempotency: " + op.Name() + " is registered twice") //nolint:forbidigo // at the start
		}
		e.operations[op.Name()] = op
	}
}

// Operation returns the registered operation with this name, or nil.
func (e *Engine) Operation(name string) Operation { return e.operations[name] }

// Request is one use of a key.
type Request struct {
	AccountID uuid.UUID
	Key       Key
	Method    string // part of the fingerprint, like Path and Params
	Path      string
	Params    []byte // canonical, from Canonicalize

	OnClaim func() // called when the claim or takeover is committed, unless nil
}

// Result is the result of a request.
type Result struct {
	Response Response
	Replayed bool // the response was stored by an earlier request
	KeyID    uuid.UUID
	Runs     int           // so far, 0 without a key
	From, To RecoveryPoint // where this run began and ended
}

// Do runs the operation for a new key, replays the response of a finished one, and takes over
// an unfinished one that no run holds. The end of ctx does not stop it (R10, detached work).
func (e *Engine) Do(ctx context.Context, req Request, op Operation) (Result, error) {
	ctx = context.WithoutCancel(ctx)
	id := KeyID(req.AccountID, req.Key)

	for range 10 { // the second pass finds the row that has won; only one with another id would conflict for ever
		stored, err := e.store.find(ctx, req.AccountID, id)
		switch {
		case err == nil:
			stored.Key = req.Key // the row of an expired key does not have it
			return e.decide(ctx, stored, &req, op)
		case !errors.Is(err, ErrNotFound):
			return Result{KeyID: id}, err
		}
		// The lookup only saves work: the INSERT of the claim decides (R1, claim by insert).
		run := e.newRun(op, &Run{
			AccountID: req.AccountID, Key: req.Key, KeyID: id, Path: req.Path, Params: req.Params,
			request: &req, point: Started,
		})
		if err := run.execute(ctx); !errors.Is(err, errClaimConflict) {
			return run.result(), err
		}
	}
	return Result{KeyID: id}, fmt.Errorf("idempotency: a row conflicts with key %s, and is not the key's: %w", id, errClaimConflict)
}

// Resume continues an unfinished request from its stored parameters, because current ones or
// current prices could charge another amount (R4, stored parameters).
//
// The run ends with the deadline of ctx, so a step that resumes another key bounds that run by its own
// lease. The cancellation of ctx does not end it (R10, detached work).
func (e *Engine) Resume(ctx context.Context, accountID, keyID uuid.UUID) (Result, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	stored, err := e.store.find(ctx, accountID, keyID)
	if err == nil && stored.Expired {
		err = ErrNotFound
	}
	if err != nil {
		return Result{KeyID: keyID}, err
	}
	return e.decide(ctx, stored, nil, e.operations[stored.Operation])
}

func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithoutCancel(ctx), func() {}
}

// decide rejects a request with a known key, replays its response or takes it over, in this
// order (R2, order of the answers). Without a request, it resumes the key.
func (e *Engine) decide(ctx context.Context, stored *keyRow, req *Request, op Operation) (Result, error) {
	result := Result{KeyID: stored.ID, Runs: stored.Runs, From: stored.Point, To: stored.Point}
	if stored.Expired {
		return result, &KeyExpiredError{stored.StoredKey}
	}
	other := req != nil && !bytes.Equal(stored.Fingerprint, fingerprint(req))
	switch {
	case other && stored.Point == Finished:
		return result, ErrFinishedKeyReused
	case other:
		return result, ErrKeyReused
	case stored.Point == Finished:
		result.Response, result.Replayed = stored.response(), true
		return result, nil
	case stored.Leased:
		return result, ErrInProgress
	}
	if err := stored.check(op); err != nil {
		return result, err
	}
	run := e.newRun(op, &Run{
		AccountID: stored.AccountID, Key: stored.Key, KeyID: stored.ID, Path: stored.Path, Params: stored.Params, Resumed: true,
		request: req, point: stored.Point, Runs: stored.Runs + 1,
	})
	if err := run.takeOver(ctx); err != nil {
		return result, err
	}
	err := run.execute(ctx)
	return run.result(), err
}

// check returns ErrNewerVersion if this program cannot continue the unfinished key: it does not have the operation (op
// is nil), or the operation has no step from the recovery point. Then a newer version has written it (R18, newer versions).
func (k *keyRow) check(op Operation) error {
	if op == nil || op.Name() != k.Operation || op.Steps(&Run{}).At[k.Point] == nil {
		return fmt.Errorf("%w: operation %q, recovery point %q", ErrNewerVersion, k.Operation, k.Point)
	}
	return nil
}

func (e *Engine) newRun(op Operation, run *Run) *Run {
	run.engine, run.operation, run.from = e, op.Name(), run.point
	run.token = uuid.New()
	run.steps = op.Steps(run)
	return run
}

func (run *Run) result() Result {
	return Result{Response: run.response, KeyID: run.KeyID, Runs: run.Runs, From: run.from, To: run.point}
}
