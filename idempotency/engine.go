package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Do executes a request under its key (R2): it runs the operation for a new key,
// replays the stored response of a finished key, and takes over an unfinished key
// that no run holds. It returns [ErrKeyReused], [ErrInProgress], [*KeyExpiredError],
// [ErrNewerVersion], [postgres.ErrUnavailable] or the error of a step. The end of ctx
// does not stop it (R10).
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
	r := e.newRun(Run{AccountID: req.AccountID, Key: req.Key, KeyID: id, Params: req.Params}, op, Started, req.OnClaim)
	r.claim, r.fingerprint = &req, hash
	result, err := r.execute(ctx)
	if r.existing != nil {
		return e.decide(ctx, r.existing, hash, op, req.OnClaim)
	}
	return result, err
}

// Resume continues an unfinished request from its stored parameters (R4), with the one
// of operations that the key names. A leased key returns [ErrInProgress], a missing key
// [ErrNotFound].
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
	return e.decide(ctx, stored, stored.fingerprint, operations[i], nil)
}

// decide applies R2 to a known key: reused, replay, in progress, takeover.
func (e *Engine) decide(ctx context.Context, stored *storedKey, hash []byte, op Operation, onClaim func()) (Result, error) {
	result := stored.result()
	switch {
	case stored.fingerprint[0] != fingerprintVersion:
		return result, fmt.Errorf("%w: fingerprint version %d", ErrNewerVersion, stored.fingerprint[0])
	case !bytes.Equal(stored.fingerprint, hash):
		if stored.Point == Finished {
			return result, ErrFinishedKeyReused
		}
		return result, ErrKeyReused
	case stored.Point == Finished:
		result.Response, result.Replayed = stored.response, true
		return result, nil
	case stored.Leased:
		return result, ErrInProgress
	}
	if stored.Operation != op.Name() {
		return result, fmt.Errorf("%w: operation %q", ErrNewerVersion, stored.Operation)
	}
	run := Run{AccountID: stored.AccountID, Key: stored.Key, KeyID: stored.ID, Params: stored.params, Resumed: true}
	r := e.newRun(run, op, stored.Point, onClaim)
	if _, known := r.steps.From[stored.Point]; !known {
		return result, fmt.Errorf("%w: recovery point %q", ErrNewerVersion, stored.Point) // R18
	}
	attempt, createdAt, since, err := e.store.takeOver(ctx, r.fence())
	switch {
	case errors.Is(err, ErrInProgress):
		return result, err // another run took it first
	case err != nil:
		r.release(ctx, err) // the takeover may have been committed
		return result, err
	}
	r.setLease(attempt, createdAt, since)
	return r.execute(ctx)
}

type run struct {
	Run
	engine    *Engine
	operation string
	steps     Steps
	onClaim   func()

	claim       *Request   // of a new key; nil once it is committed
	fingerprint []byte     // of the claim
	existing    *storedKey // the row of the key, if the claim found one

	token    uuid.UUID     // of the lease (R7)
	leaseEnd time.Time     // by this process's clock, not after the end by the database's
	from     RecoveryPoint // where the run began
	point    RecoveryPoint
	mayHold  bool // the row has the token, or may have it after an unknown COMMIT
	response Response
}

func (e *Engine) newRun(r Run, op Operation, from RecoveryPoint, onClaim func()) *run {
	run := &run{Run: r, engine: e, operation: op.Name(), onClaim: onClaim, token: uuid.New(), from: from, point: from}
	run.lockTimeout = e.store.lockTimeout
	run.extendLease(e.clock())
	run.steps = op.Steps(&run.Run)
	return run
}

func (r *run) setLease(attempt int, createdAt, since time.Time) {
	r.claim, r.since, r.mayHold = nil, since, true
	received := r.engine.clock()
	r.Attempt, r.CreatedAt, r.leasedAt = attempt, createdAt.UTC(), since
	r.elapsed = func() time.Duration { return r.engine.clock().Sub(received) }
}

// extendLease renews the lease by this process's clock. The database's lease starts
// after sent, so it ends later (R8).
func (r *run) extendLease(sent time.Time) { r.leaseEnd = sent.Add(r.lockTimeout) }

func (r *run) fence() fence { return fence{r.AccountID, r.KeyID, r.token, r.point, r.since} }

func (r *run) result() Result {
	return Result{Response: r.response, KeyID: r.KeyID, Attempt: r.Attempt, From: r.from, To: r.point}
}

// execute runs steps until the request is finished or a step fails. It releases the
// lease on every error and panic, unless the lease is lost.
func (r *run) execute(ctx context.Context) (Result, error) {
	cause := errPanicked
	defer func() {
		if cause != nil && r.mayHold && !errors.Is(cause, ErrLeaseLost) {
			r.release(ctx, cause)
		}
	}()
	for r.claimed(); r.point != Finished; r.claimed() {
		if cause = r.step(ctx); cause != nil {
			return r.result(), cause
		}
		cause = errPanicked
	}
	cause = nil
	r.engine.waiters.notify(r.AccountID, r.KeyID)
	return r.result(), nil
}

// claimed calls OnClaim after the claim or the takeover is committed.
func (r *run) claimed() {
	if r.claim == nil && r.onClaim != nil {
		r.onClaim()
		r.onClaim = nil
	}
}

// step makes the external call of the recovery point and commits the record.
func (r *run) step(ctx context.Context) error {
	clock := r.engine.clock
	ctx, done := r.engine.onStep(ctx, StepStart{r.operation, r.KeyID, r.Attempt, r.point})
	end := StepEnd{To: r.point, Err: errPanicked}
	defer func() { done(end) }()

	record := r.steps.Start
	if r.claim == nil {
		begun := clock()
		var err error
		record, err = r.call(ctx)
		end.Call = clock().Sub(begun)
		if err != nil {
			end.Err = err
			return err
		}
	}
	begun := clock()
	end.Err = r.commitStep(ctx, record)
	end.To, end.Commit = r.point, clock().Sub(begun)
	return end.Err
}

// call ends with the lease (R8). It compares the wall clock too, because the
// monotonic clock stops while a machine is suspended.
func (r *run) call(ctx context.Context) (Record, error) {
	now := r.engine.clock()
	ctx, cancel := context.WithTimeout(ctx, min(r.leaseEnd.Sub(now), r.leaseEnd.Round(0).Sub(now.Round(0))))
	defer cancel()
	return r.steps.From[r.point](ctx)
}

// release ends the lease early and keeps the recovery point (R11).
func (r *run) release(ctx context.Context, cause error) {
	if err := r.engine.store.release(ctx, r.fence(), cause); err != nil {
		r.engine.logger.WarnContext(ctx, "idempotency: lease not released, it will expire", "key_id", r.KeyID, "error", err)
	}
}

const transactionAttempts = 3

// retry repeats a retryable attempt, with backoff and jitter.
func retry(attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || n == transactionAttempts || !isRetryable(err) {
			return err
		}
		time.Sleep(time.Duration(10+rand.IntN(20)) * time.Millisecond << n) //nolint:gosec // jitter needs no secrecy
	}
}
