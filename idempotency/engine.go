package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Engine executes operations under idempotency keys.
type Engine struct {
	config  Config
	store   *store
	waiters *waiters
}

// Config configures an [Engine].
type Config struct {
	LockTimeout time.Duration    // of a lease (R8, R9)
	Clock       func() time.Time // time.Now
	Waiters     int              // requests that wait at once
	OnStep      StepHook         // may be nil
	Logger      *slog.Logger
}

// New returns an engine on pool, which must be configured by [postgres.Configure].
func New(pool *pgxpool.Pool, config Config) (*Engine, error) {
	switch {
	case !postgres.IsConfigured(pool.Config()):
		return nil, errors.New("idempotency: the pool was not made with postgres.Configure")
	case config.LockTimeout <= 0:
		return nil, errors.New("idempotency: LockTimeout must be positive")
	case config.Clock == nil || config.Logger == nil:
		return nil, errors.New("idempotency: Clock and Logger are required")
	}
	if config.OnStep == nil {
		config.OnStep = func(ctx context.Context, _ StepStart) (context.Context, func(StepEnd)) { return ctx, func(StepEnd) {} }
	}
	store := &store{pool, config.LockTimeout}
	return &Engine{config, store, newWaiters(config.Waiters, store.poll, config.Logger)}, nil
}

// Do runs the operation for a new key, replays the response of a finished one, and takes over
// an unfinished one that no run holds (R2). The end of ctx does not stop it (R10).
func (e *Engine) Do(ctx context.Context, req Request, op Operation) (Result, error) {
	ctx = context.WithoutCancel(ctx)
	id := KeyID(req.AccountID, req.Key)
	hash := fingerprint(req.Method, req.Path, req.Params)

	stored, err := e.store.find(ctx, req.AccountID, id)
	switch {
	case err == nil:
		return e.decide(ctx, stored, hash, op, req.OnClaim)
	case !errors.Is(err, ErrNotFound):
		return Result{KeyID: id}, err
	}

	// The INSERT of the claim decides, not this lookup (R1).
	r := e.newExecution(Run{AccountID: req.AccountID, Key: req.Key, KeyID: id, Path: req.Path, Params: req.Params}, op, Started, req.OnClaim)
	r.request, r.fingerprint = &req, hash
	result, existing, err := r.execute(ctx)
	if existing != nil {
		return e.decide(ctx, existing, hash, op, req.OnClaim)
	}
	return result, err
}

// Resume continues an unfinished request from its stored parameters (R4).
func (e *Engine) Resume(ctx context.Context, accountID, keyID uuid.UUID, operations []Operation) (Result, error) {
	ctx = context.WithoutCancel(ctx)
	stored, err := e.store.find(ctx, accountID, keyID)
	if err != nil {
		return Result{KeyID: keyID}, err
	}
	i := slices.IndexFunc(operations, func(op Operation) bool { return op.Name() == stored.Operation })
	if i < 0 {
		return stored.result(), fmt.Errorf("%w: operation %q", ErrNewerVersion, stored.Operation)
	}
	return e.decide(ctx, stored, stored.Fingerprint, operations[i], nil)
}

// decide rejects a request with a known key, replays its response or takes it over (R2).
func (e *Engine) decide(ctx context.Context, stored *keyRow, hash []byte, op Operation, onClaim func()) (Result, error) {
	result := stored.result()
	switch {
	case stored.Fingerprint[0] != fingerprintVersion:
		return result, fmt.Errorf("%w: fingerprint version %d", ErrNewerVersion, stored.Fingerprint[0])
	case !bytes.Equal(stored.Fingerprint, hash) && stored.Point == Finished:
		return result, ErrFinishedKeyReused
	case !bytes.Equal(stored.Fingerprint, hash):
		return result, ErrKeyReused
	case stored.Point == Finished:
		result.Response, result.Replayed = stored.response(), true
		return result, nil
	case stored.Leased:
		return result, ErrInProgress
	case stored.Operation != op.Name():
		return result, fmt.Errorf("%w: operation %q", ErrNewerVersion, stored.Operation)
	}
	run := Run{AccountID: stored.AccountID, Key: stored.Key, KeyID: stored.ID, Path: stored.Path, Params: stored.Params, Resumed: true}
	r := e.newExecution(run, op, stored.Point, onClaim)
	if _, known := r.steps.At[stored.Point]; !known {
		return result, fmt.Errorf("%w: recovery point %q", ErrNewerVersion, stored.Point) // only that version knows what has been done (R18)
	}
	switch err := r.takeOver(ctx); {
	case errors.Is(err, ErrInProgress):
		return result, err // another run was faster
	case err != nil:
		r.release(ctx, err) // the takeover may have been committed
		return result, err
	}
	result, _, err := r.execute(ctx)
	return result, err
}

type execution struct {
	Run
	engine    *Engine
	operation string
	steps     Steps
	onClaim   func()

	request     *Request // of a new key, whose claim inserts it
	fingerprint []byte
	claimed     bool // the claim or the takeover is committed

	token    uuid.UUID
	mayHold  bool // claimed, or the claim's COMMIT has an unknown outcome
	from     RecoveryPoint
	point    RecoveryPoint
	response Response
}

func (e *Engine) newExecution(r Run, op Operation, from RecoveryPoint, onClaim func()) *execution {
	run := &execution{Run: r, engine: e, operation: op.Name(), onClaim: onClaim, token: uuid.New(), from: from, point: from}
	run.lockTimeout, run.clock = e.config.LockTimeout, e.config.Clock
	run.steps = op.Steps(&run.Run)
	return run
}

// execute runs steps until the request is finished or one fails, which releases the lease.
// existing is the row of a key that another request has claimed.
func (r *execution) execute(ctx context.Context) (result Result, existing *keyRow, err error) {
	err = errPanicked
	defer func() {
		result = Result{Response: r.response, KeyID: r.KeyID, Attempt: r.Attempt, From: r.from, To: r.point}
		if err != nil && existing == nil && r.mayHold && !errors.Is(err, ErrLeaseLost) {
			r.release(ctx, err)
		}
	}()
	for r.notifyClaimed(); r.point != Finished; r.notifyClaimed() {
		if existing, err = r.step(ctx); err != nil {
			return result, existing, err
		}
		err = errPanicked
	}
	r.engine.waiters.notify(r.AccountID, r.KeyID)
	return result, nil, nil
}

func (r *execution) notifyClaimed() {
	if r.claimed && r.onClaim != nil {
		r.onClaim()
		r.onClaim = nil
	}
}

func (r *execution) step(ctx context.Context) (existing *keyRow, err error) {
	ctx, done := r.engine.config.OnStep(ctx, StepStart{r.operation, r.KeyID, r.Attempt, r.point})
	end := StepEnd{To: r.point, Err: errPanicked}
	defer func() { done(end) }()

	record := r.steps.Start
	if r.claimed {
		begun := r.clock()
		record, err = r.call(ctx)
		end.Call = r.clock().Sub(begun)
		if err != nil {
			end.Err = err
			return nil, err
		}
	}
	begun := r.clock()
	existing, err = r.commit(ctx, record)
	end.To, end.Commit, end.Err = r.point, r.clock().Sub(begun), err
	return existing, err
}

// call ends with the lease (R8), also by the wall clock, because the monotonic one stops
// while a machine is suspended.
func (r *execution) call(ctx context.Context) (RecordFunc, error) {
	now, end := r.clock(), r.leaseSent.Add(r.lockTimeout)
	ctx, cancel := context.WithTimeout(ctx, min(end.Sub(now), end.Round(0).Sub(now.Round(0))))
	defer cancel()
	return r.steps.At[r.point](ctx)
}

// retry makes up to three attempts, with backoff and jitter.
func retry(attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || n == 3 || !isRetryable(err) {
			return err
		}
		time.Sleep(time.Duration(10+rand.IntN(20)) * time.Millisecond << n) //nolint:gosec // jitter needs no secrecy
	}
}
