package idempotency_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
)

// newWaitingBench is a bench on which up to so many may wait.
func newWaitingBench(t *testing.T, waiters int, configure ...func(*pgxpool.Config)) *bench {
	t.Helper()
	b := newBench(t, configure...)
	b.engine = newWaitingEngine(t, b.pool, waiters)
	return b
}

func newWaitingEngine(t *testing.T, pool *pgxpool.Pool, waiters int) *idempotency.Engine {
	t.Helper()
	engine, err := idempotency.New(pool, idempotency.Config{
		LockTimeout: lockTimeout,
		Clock:       time.Now,
		Waiters:     waiters,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return engine
}

// came is what a request came to.
type came struct {
	idempotency.Result
	err error
}

// doAsync sends a request in the background.
func (b *bench) doAsync(req idempotency.Request, op idempotency.Operation) <-chan came {
	done := make(chan came, 1)
	go func() {
		result, err := b.do(req, op)
		done <- came{result, err}
	}()
	return done
}

// awaitWaiters returns when so many wait.
func (b *bench) awaitWaiters(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.engine.Waiting() == n }, patience, tick)
}

// gate stops a foreign call.
type gate struct {
	reached, opened chan struct{}
	verdict         error // of the call that was stopped
	once            sync.Once
}

func newGate() *gate { return &gate{reached: make(chan struct{}), opened: make(chan struct{})} }

// call stops the first call that comes and lets the others pass.
func (g *gate) call(context.Context, *idempotency.Run) (err error) {
	g.once.Do(func() {
		close(g.reached)
		<-g.opened
		err = g.verdict
	})
	return err
}

func (g *gate) open(verdict error) {
	g.verdict = verdict
	close(g.opened)
}

func TestWait_forTheAnswerOfARun(t *testing.T) {
	t.Parallel()
	const waiters = 50
	b := newWaitingBench(t, waiters)
	req, gate := b.request(), newGate()
	op := &threeSteps{pay: gate.call}
	first := b.doAsync(req, op)
	<-gate.reached

	req.Wait = time.Minute
	var waiting []<-chan came
	for range waiters {
		waiting = append(waiting, b.doAsync(req, op))
	}
	b.awaitWaiters(waiters)
	b.requireIdle() // on the pool's only connection (R6)
	extra, err := b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress, "one too many")
	require.False(t, extra.Waited)

	gate.open(nil)
	made := <-first
	require.NoError(t, made.err)
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, made.Response, got.Response)
		require.True(t, got.Replayed)
		require.True(t, got.Waited)
	}
	require.Equal(t, onceEach, b.effects(req))
	require.Equal(t, keyState{Point: "finished", Attempt: 1}, b.state(req))
	require.Zero(t, b.engine.Waiting())
}

// The run is another process's, so that only the row tells of its end.
func TestWait_forAnotherProcess(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 10)
	elsewhere := &bench{t: t, pool: b.pool, engine: newEngine(t, b.pool, time.Now), account: b.account}
	req, gate := b.request(), newGate()
	op := &threeSteps{pay: gate.call}
	first := elsewhere.doAsync(req, op)
	<-gate.reached
	req.Wait = time.Minute
	waiting := b.doAsync(req, op)
	b.awaitWaiters(1)
	gate.open(nil)
	require.Equal(t, (<-first).Response, (<-waiting).Response)
}

// A run gives the key back without an answer: one of those who wait takes over,
// and the others get what it makes.
func TestWait_oneTakesOver(t *testing.T) {
	t.Parallel()
	const waiters = 50
	b := newWaitingBench(t, waiters, connections(4))
	req, gate := b.request(), newGate()
	op := &threeSteps{pay: gate.call}
	first := b.doAsync(req, op)
	<-gate.reached
	req.Wait = time.Minute
	var waiting []<-chan came
	for range waiters {
		waiting = append(waiting, b.doAsync(req, op))
	}
	b.awaitWaiters(waiters)
	gate.open(errNoAnswer)
	require.ErrorIs(t, (<-first).err, errNoAnswer)

	var results []idempotency.Result
	var errs []error
	for _, done := range waiting {
		got := <-done
		require.NoError(t, got.err)
		require.True(t, got.Waited)
		results, errs = append(results, got.Result), append(errs, got.err)
	}
	requireOneAnswer(t, results, errs)
	require.Equal(t, onceEach, b.effects(req))
	require.Equal(t, keyState{Point: "finished", Attempt: 2}, b.state(req))
	require.EqualValues(t, 3, op.calls.Load(), "reserve once, pay twice")
}

// A run whose lease is over without a word is taken over as well.
func TestWait_forARunThatDied(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 10)
	req, op := b.request(), &threeSteps{}
	b.put(req, op, idempotencytest.State{Point: paid, Leased: true})
	req.Wait = time.Minute
	waiting := b.doAsync(req, op)
	b.awaitWaiters(1)
	b.set(req, "locked_at = locked_at - interval '1 hour', last_run_at = last_run_at - interval '1 hour'")
	got := <-waiting
	require.NoError(t, got.err)
	require.False(t, got.Replayed)
	require.Equal(t, 2, got.Attempt)
}

func TestWait_isOverBeforeTheRun(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 10)
	req, op := b.request(), &threeSteps{}
	b.put(req, op, idempotencytest.State{Point: paid, Leased: true})
	req.Wait = 10 * time.Millisecond
	result, err := b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.True(t, result.Waited)
	require.Zero(t, op.calls.Load())
}

// The fingerprint is compared before a wait, and so nobody waits for an answer
// that can never be theirs (R2).
func TestWait_notForAnotherRequest(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 10)
	req, op := b.request(), &threeSteps{}
	b.put(req, op, idempotencytest.State{Point: paid, Leased: true})
	req.Wait, req.Params = time.Minute, []byte(`{"amount":1300}`)
	result, err := b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
	require.False(t, result.Waited)
}

// A claim that hangs keeps its row from being read, so who waits for it has not
// been compared with it. That is made up for when the row can be read.
func TestWait_forAClaimThatHangs(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 10, sessionSetting("lock_timeout", "50"))
	req := b.request()
	conn, err := pgx.Connect(t.Context(), dbtest.URL(b.pool))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at
) VALUES ($1, $2, $3, 'one_step', 'POST', '/', '', decode(repeat('01', 33), 'hex'), 'started', $1, 1, now(), now())`,
		idempotency.KeyID(b.account, req.Key), b.account, string(req.Key))
	require.NoError(t, err)

	req.Wait = time.Minute
	waiting := b.doAsync(req, oneStep())
	b.awaitWaiters(1)
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, (<-waiting).err, idempotency.ErrKeyReused)
	require.Empty(t, b.effects(req))
}

func TestWait_clientGoneOrProcessStops(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 10)
	req, op := b.request(), &threeSteps{}
	b.put(req, op, idempotencytest.State{Point: paid, Leased: true})
	req.Wait = time.Minute
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := b.engine.Do(ctx, req, op)
		gone <- err
	}()
	stays := b.doAsync(req, op)
	b.awaitWaiters(2)
	hangUp()
	require.ErrorIs(t, <-gone, idempotency.ErrInProgress)
	b.awaitWaiters(1)

	b.engine.StopWaiting()
	got := <-stays
	require.ErrorIs(t, got.err, idempotency.ErrInProgress)
	require.False(t, got.Waited)
	_, err := b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress, "at once")
	require.Zero(t, op.calls.Load())
}

// Each look at the database is one query for all keys, by primary key.
func TestWait_cost(t *testing.T) {
	t.Parallel()
	meter, statements := idempotencytest.NewMeter(), &statements{}
	b := newWaitingBench(t, 500, meter.Configure, statements.configure)
	b.fill(10_000, time.Hour)
	op := &threeSteps{}
	var waiting []<-chan came
	var keys []idempotency.Request
	for range 10 {
		req := b.request()
		b.put(req, op, idempotencytest.State{Point: paid, Leased: true})
		b.set(req, "last_run_at = last_run_at - interval '1 hour'")
		req.Wait = time.Minute
		keys = append(keys, req)
		for range 10 {
			waiting = append(waiting, b.doAsync(req, op))
		}
	}
	b.analyze()
	b.awaitWaiters(100)
	b.requireIdle()
	statements.forget()
	meter.Reset()
	require.Eventually(t, func() bool { return meter.RoundTrips() >= 3 }, patience, tick)
	plan := statements.plan(b)
	require.Contains(t, plan, "Index Scan using idempotency_keys_pkey")
	require.NotContains(t, plan, "Seq Scan")
	require.Zero(t, meter.Commits())

	for _, req := range keys {
		b.set(req, "locked_at = NULL")
	}
	for _, done := range waiting {
		require.NoError(t, (<-done).err)
	}
	require.EqualValues(t, len(keys), op.calls.Load(), "one of each ten took over")
}

func TestWatch(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 1)
	op := &threeSteps{}
	watch := func(req idempotency.Request, wait time.Duration) (idempotency.Status, bool, error) {
		return b.engine.Watch(t.Context(), req.AccountID, idempotency.KeyID(req.AccountID, req.Key), wait)
	}
	_, _, err := watch(b.request(), time.Minute)
	require.ErrorIs(t, err, idempotency.ErrNotFound)

	done := b.request()
	made, err := b.do(done, op)
	require.NoError(t, err)
	status, waited, err := watch(done, time.Minute)
	require.NoError(t, err)
	require.False(t, waited)
	require.Equal(t, made.Response.Status, status.Response)
	require.NotNil(t, status.FinishedAt)

	req := b.request()
	b.put(req, op, idempotencytest.State{Point: paid})
	_, _, err = watch(idempotency.Request{AccountID: uuid.New(), Key: req.Key}, 0)
	require.ErrorIs(t, err, idempotency.ErrNotFound, "another account's")
	status, waited, err = watch(req, 10*time.Millisecond)
	require.NoError(t, err)
	require.True(t, waited)
	require.Equal(t, paid, status.Point)
	require.Nil(t, status.FinishedAt)
	require.Zero(t, op.calls.Load()-2, "who looks on does not take over")

	// What is delivered is what is read.
	for _, change := range []string{
		"needs_review_at = now(), last_error = 'no answer'",
		"needs_review_at = NULL, recovery_point = 'finished', finished_at = now(), response_code = 201, response_headers = '{}', response_body = ''",
	} {
		b.set(req, "needs_review_at = NULL")
		news := make(chan idempotency.Status, 1)
		go func() {
			status, waited, err := watch(req, time.Minute)
			if err == nil && waited {
				news <- status
			}
			close(news)
		}()
		b.awaitWaiters(1)
		full, waited, err := watch(req, time.Minute)
		require.NoError(t, err)
		require.False(t, waited, "one too many")
		require.Equal(t, paid, full.Point)
		b.set(req, change)
		read, err := b.engine.Status(t.Context(), req.AccountID, idempotency.KeyID(req.AccountID, req.Key))
		delivered := <-news
		require.NoError(t, err)
		require.Equal(t, read, delivered)
		require.Equal(t, "/v1/things", read.Path)
	}
}

func TestDo_saysWhenTheKeyIsClaimed(t *testing.T) {
	t.Parallel()
	b := newWaitingBench(t, 1)
	claims := 0
	claiming := func(req idempotency.Request) idempotency.Request {
		req.Claimed = func() {
			claims++
			require.True(t, b.state(req).Leased, "it can be seen from outside")
		}
		return req
	}
	req := claiming(b.request())
	_, err := b.do(req, &threeSteps{reserve: func(context.Context, *idempotency.Run) error { return errNoAnswer }})
	require.ErrorIs(t, err, errNoAnswer)
	require.Equal(t, 1, claims, "a new key")
	_, err = b.do(req, &threeSteps{})
	require.NoError(t, err)
	require.Equal(t, 2, claims, "a takeover")
	_, err = b.do(req, &threeSteps{})
	require.NoError(t, err)
	require.Equal(t, 2, claims, "a replay claims nothing")

	invalid := claiming(b.request())
	invalid.Validate = func() error { return errNoAnswer }
	_, err = b.do(invalid, &threeSteps{})
	require.ErrorIs(t, err, errNoAnswer)
	busy := b.request()
	b.put(busy, &threeSteps{}, idempotencytest.State{Point: paid, Leased: true})
	_, err = b.do(claiming(busy), &threeSteps{})
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	_, err = b.do(claiming(b.request()), operation{name: "fails", steps: func(*idempotency.Run) idempotency.Steps {
		return idempotency.Steps{idempotency.Started: {Record: func(context.Context, *idempotency.Tx) (idempotency.Outcome, error) {
			return idempotency.Outcome{}, errNoAnswer
		}}}
	}})
	require.ErrorIs(t, err, errNoAnswer)
	require.Equal(t, 2, claims)
}
