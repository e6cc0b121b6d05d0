package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

const (
	// acquireTimeout bounds the wait for a pool connection. A server that has
	// none to spare says so while the client still listens.
	acquireTimeout = 5 * time.Second

	// databaseTimeout bounds one exchange with the database. It is longer than
	// statement_timeout (R21), so that the database's own word comes first.
	databaseTimeout = 15 * time.Second

	// leftToReads is the part of the connections, a quarter, that the transactions
	// of runs leave to those who only look: however much there is to do, what is
	// finished is answered at once.
	leftToReads = 4

	// releaseTimeout bounds giving a lease back, because the answer waits for it.
	// It is longer than lock_timeout.
	releaseTimeout = 3 * time.Second
)

// Engine runs operations under idempotency keys. It is safe for concurrent use
// and keeps no state but its pool and who waits: run as many processes as needed.
type Engine struct {
	pool          *pgxpool.Pool
	lockTimeout   time.Duration
	clock         func() time.Time
	runs          *Gate
	reads         *Gate
	inTransaction chan struct{} // has as many elements as runs hold connections
	observe       func(Phase)   // or nil
	tracer        Tracer        // or nil
	logger        *slog.Logger
	room          *room
}

// Config is what an [Engine] needs besides the pool.
type Config struct {
	// LockTimeout is the length of a lease (R8). Every foreign call, its own
	// retries included, must end well before it (R9).
	LockTimeout time.Duration

	// Clock is time.Now. It measures how much of a lease is left, and nothing is
	// decided by what time it shows: whether a lease is alive is the database's to
	// say.
	Clock func() time.Time

	// Waiters is how many requests may wait at once for keys that others work on,
	// see [Request.Wait] and [Engine.Watch]. With 0 nobody waits.
	Waiters int

	// Runs bounds the runs that are under way at once. When it is full neither is a
	// new key claimed nor an abandoned one taken over; any other is answered as
	// ever, for which Reads bounds the looks. With nil there is no bound, for those
	// who know how many runs they start.
	Runs, Reads *Gate

	// Observe, when not nil, hears of each phase that ended, for metrics. Runs wait
	// for it.
	Observe func(Phase)

	// Tracer, when not nil, follows what is done.
	Tracer Tracer

	Logger *slog.Logger
}

// New returns an engine over pool, whose configuration must have gone through
// [postgres.Configure].
func New(pool *pgxpool.Pool, config Config) (*Engine, error) {
	switch {
	case pool == nil:
		return nil, errors.New("idempotency: no pool")
	case !postgres.IsConfigured(pool.Config()):
		return nil, errors.New("idempotency: the pool was not made with postgres.Configure")
	case config.LockTimeout <= 0:
		return nil, errors.New("idempotency: LockTimeout must be positive")
	case config.Clock == nil:
		return nil, errors.New("idempotency: no clock")
	case config.Waiters < 0:
		return nil, errors.New("idempotency: Waiters must not be negative")
	case config.Logger == nil:
		return nil, errors.New("idempotency: no logger")
	}
	connections := int(pool.Config().MaxConns)
	e := &Engine{
		pool:          pool,
		lockTimeout:   config.LockTimeout,
		clock:         config.Clock,
		runs:          config.Runs,
		reads:         config.Reads,
		observe:       config.Observe,
		inTransaction: make(chan struct{}, connections-connections/leftToReads),
		tracer:        config.Tracer,
		logger:        config.Logger,
	}
	e.room = newRoom(config.Waiters, e.lookForNews, config.Logger)
	return e, nil
}

// Do answers a request: it runs the operation for a new key, replays the stored
// response of a finished one, and goes on with one that an earlier run left
// behind (R2). Beside [ErrKeyReused], [ErrInProgress], [ErrNewerVersion] and
// [postgres.ErrUnavailable] it returns [ErrOverloaded] or [ErrShareTaken] when no run may
// begin, the error of req.Validate, and whatever error a step returned.
// The work does not end with ctx (R10); a wait does.
func (e *Engine) Do(ctx context.Context, req Request, op Operation) (Result, error) {
	if req.Claimed != nil {
		req.Claimed = sync.OnceFunc(req.Claimed) // a run that lost its lease may get another one
	}
	return e.traced(ctx, Span{RunSpan, op.Name()}, func(ctx context.Context) (Result, error) {
		result, err := e.do(context.WithoutCancel(ctx), req, op)
		if errors.Is(err, ErrInProgress) && req.Wait > 0 {
			return e.await(ctx, req, op, result, err)
		}
		return result, err
	})
}

func (e *Engine) do(ctx context.Context, req Request, op Operation) (Result, error) {
	id := KeyID(req.AccountID, req.Key)
	hash := fingerprint(req.Method, req.Path, req.Params)

	stored, now, err := e.look(ctx, req.AccountID, id)
	switch {
	case err != nil:
		return Result{KeyID: id}, err
	case stored != nil:
		return e.answer(ctx, stored, hash, op, req.Claimed)
	}
	if req.Validate != nil {
		if err := req.Validate(); err != nil {
			return Result{KeyID: id}, err
		}
	}
	place, err := e.runs.Enter(req.AccountID)
	if err != nil {
		return Result{KeyID: id}, err
	}
	defer place.Leave()

	x := e.newExecution(&Run{AccountID: req.AccountID, Key: req.Key, KeyID: id, Params: req.Params}, op, Started, place)
	x.origin = e.origin(ctx)
	x.leased(0, now, now) // so that the first step has the database's time; the claim says more
	stored, err = e.start(ctx, x, req, op, hash)
	switch {
	case err != nil:
		return x.result(), err
	case stored != nil:
		place.Leave() // a takeover enters anew
		return e.answer(ctx, stored, hash, op, req.Claimed)
	default:
		return e.proceed(ctx, x, req.Claimed)
	}
}

// look reads the key's row, nil when there is none, and the database's time, for
// a request that has no run yet: it has a place among those who only look. Most
// keys are new; what is found here is answered in this one round trip.
func (e *Engine) look(ctx context.Context, accountID, id uuid.UUID) (stored *storedKey, now time.Time, err error) {
	place, err := e.reads.Enter(accountID)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer place.Leave()
	look := func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue(lookSQL, accountID, id, e.lockTimeout).Query(func(rows pgx.Rows) error {
			var err error
			stored, now, err = scanLook(rows)
			return err
		})
		return conn.SendBatch(ctx, batch).Close()
	}
	err = retry(func() error { return e.withConn(ctx, look) })
	return stored, now.UTC(), err
}

// Resume goes on with the key's request, from the stored parameters and without
// a client: the same path as a retry takes. find returns the operation of a
// name. A finished key gives its stored response, one that somebody works on
// [ErrInProgress], one that does not exist [ErrNotFound].
func (e *Engine) Resume(ctx context.Context, accountID, keyID uuid.UUID, find func(operation string) (Operation, bool)) (Result, error) {
	ctx = context.WithoutCancel(ctx)
	stored, err := e.lookup(ctx, accountID, keyID)
	if err != nil {
		return Result{KeyID: keyID}, err
	}
	op, known := find(stored.operation)
	if !known {
		return stored.result(), fmt.Errorf("%w: operation %q", ErrNewerVersion, stored.operation)
	}
	return e.traced(ctx, Span{RunSpan, op.Name()}, func(ctx context.Context) (Result, error) {
		return e.answer(ctx, stored, stored.fingerprint, op, nil)
	})
}

// answer goes through the arms of R2, in their order.
func (e *Engine) answer(ctx context.Context, stored *storedKey, hash []byte, op Operation, claimed func()) (Result, error) {
	e.link(ctx, stored)
	switch {
	case stored.fingerprint[0] != fingerprintVersion:
		return stored.result(), fmt.Errorf("%w: fingerprint version %d", ErrNewerVersion, stored.fingerprint[0])
	case !bytes.Equal(stored.fingerprint, hash):
		return stored.result(), ErrKeyReused
	case stored.point == Finished:
		result := stored.result()
		result.Response, result.Replayed = stored.response, true
		return result, nil
	case stored.leased:
		return stored.result(), ErrInProgress
	default:
		return e.takeOver(ctx, stored, op, claimed)
	}
}

// start claims a new key and runs its first step in the same transaction (R1).
// It returns the row that was in the way, if any.
func (e *Engine) start(ctx context.Context, x *execution, req Request, op Operation, hash []byte) (*storedKey, error) {
	if step, known := x.steps[Started]; !known || step.Call != nil {
		return nil, fmt.Errorf("idempotency: operation %s: the step from %q must exist and make no call", op.Name(), Started)
	}
	var inTheWay *storedKey
	sent := e.clock()
	err := x.traced(ctx, Span{StepSpan, string(Started)}, func(ctx context.Context) error {
		return retry(func() error {
			var err error
			inTheWay, err = e.tryStart(ctx, x, req, op, hash)
			return err
		})
	})
	if inTheWay == nil {
		x.observe(Phase{From: Started, Record: e.clock().Sub(sent), Err: err})
	}
	if err != nil && x.inDoubt {
		e.release(ctx, x, err)
	}
	return inTheWay, err
}

// tryStart sends the claim in the round trip that commits the first step, so what
// was looked up before decides nothing.
func (e *Engine) tryStart(ctx context.Context, x *execution, req Request, op Operation, hash []byte) (*storedKey, error) {
	tx := &Tx{engine: e, x: x, claim: &claim{req, op.Name(), hash}}
	defer tx.close(ctx)
	err := x.record(ctx, tx)
	if !errors.Is(err, ErrLeaseLost) {
		return nil, err
	}
	tx.close(ctx) // or the look would need a second connection (R6)
	stored, err := e.lookup(ctx, x.run.AccountID, x.run.KeyID)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, errNotCommitted // the row in the way was reaped meanwhile
	case err != nil:
		return nil, err
	case stored.token == x.lease.token:
		// It is our own: a COMMIT that got no answer went through (R22).
		x.leased(stored.attempt, stored.createdAt, stored.readAt)
		x.found(stored)
		return nil, nil
	default:
		return stored, nil
	}
}

// takeOver gives the key to a new run and lets it go on (R7).
func (e *Engine) takeOver(ctx context.Context, stored *storedKey, op Operation, claimed func()) (Result, error) {
	if stored.operation != op.Name() {
		return stored.result(), fmt.Errorf("%w: operation %q", ErrNewerVersion, stored.operation)
	}
	place, err := e.runs.Enter(stored.accountID)
	if err != nil {
		return stored.result(), err
	}
	defer place.Leave()
	x := e.newExecution(&Run{
		AccountID: stored.accountID,
		Key:       stored.key,
		KeyID:     stored.id,
		Params:    stored.params,
		Resumed:   true,
	}, op, stored.point, place)
	if _, known := x.steps[stored.point]; !known {
		return stored.result(), fmt.Errorf("%w: recovery point %q", ErrNewerVersion, stored.point)
	}

	var attempt int
	var since time.Time
	err = e.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, takeoverSQL,
			stored.accountID, stored.id, string(stored.point), x.lease.token, e.lockTimeout).Scan(&attempt, &since)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return stored.result(), ErrInProgress // somebody was faster
	case err != nil:
		e.release(ctx, x, err) // it may have been ours, unheard
		return stored.result(), err
	}
	x.leased(attempt, stored.createdAt, since)
	return e.proceed(ctx, x, claimed)
}

// acquire takes a connection from the pool.
func (e *Engine) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: no connection: %w", postgres.ErrUnavailable, err)
	}
	return conn, nil
}

// acquireToRun takes a connection for a transaction of a run, of those that runs
// may have. It goes back by releaseFromRun.
func (e *Engine) acquireToRun(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	select {
	case e.inTransaction <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no connection for a run: %w", postgres.ErrUnavailable, ctx.Err())
	}
	conn, err := e.acquire(ctx)
	if err != nil {
		<-e.inTransaction
	}
	return conn, err
}

func (e *Engine) releaseFromRun(conn *pgxpool.Conn) {
	conn.Release()
	<-e.inTransaction
}

// withConn runs a statement in a transaction of its own.
func (e *Engine) withConn(ctx context.Context, statement func(ctx context.Context, conn *pgx.Conn) error) error {
	conn, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	return translateOn(conn.Conn(), statement(ctx, conn.Conn()))
}
