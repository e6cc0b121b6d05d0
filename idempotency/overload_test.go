package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// gatedBench is a bench whose engine has gates.
type gatedBench struct {
	*bench
	runs, reads *idempotency.Gate
}

func newGatedBench(t *testing.T, runs, reads int, configure ...func(*pgxpool.Config)) *gatedBench {
	t.Helper()
	b := &gatedBench{bench: newBench(t, configure...)}
	var err error
	b.runs, err = idempotency.NewGate(runs, 100)
	require.NoError(t, err)
	b.reads, err = idempotency.NewGate(reads, 100)
	require.NoError(t, err)
	b.engine, err = idempotency.New(b.pool, idempotency.Config{
		LockTimeout: lockTimeout,
		Clock:       time.Now,
		Waiters:     10,
		Runs:        b.runs,
		Reads:       b.reads,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return b
}

// take takes a place for somebody else.
func take(t *testing.T, gate *idempotency.Gate) *idempotency.Place {
	t.Helper()
	place, err := gate.Enter(uuid.New())
	require.NoError(t, err)
	return place
}

// When there is too much to do nothing begins and nothing is lost: a key is
// claimed and taken over by nobody, and answered as ever where that needs no run.
func TestDo_overloaded(t *testing.T) {
	t.Parallel()
	b := newGatedBench(t, 1, 10)
	op := &threeSteps{}
	fresh, finished, leased, abandoned, other, invalid := b.request(), b.request(), b.request(), b.request(), b.request(), b.request()
	b.put(finished, op, idempotencytest.State{Point: idempotency.Finished})
	b.put(leased, op, idempotencytest.State{Point: paid, Leased: true})
	b.put(abandoned, op, idempotencytest.State{Point: paid})
	b.put(other, op, idempotencytest.State{Point: paid})
	other.Params = []byte(`{"amount":1300}`)
	tooSmall := errors.New("amount too small")
	invalid.Validate = func() error { return tooSmall }
	before := b.row(abandoned)

	place := take(t, b.runs)
	_, err := b.do(fresh, op)
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	require.Empty(t, b.row(fresh), "no row")
	got, err := b.do(finished, op)
	require.NoError(t, err)
	require.True(t, got.Replayed)
	_, err = b.do(leased, op)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	_, err = b.do(other, op)
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
	_, err = b.do(invalid, op)
	require.ErrorIs(t, err, tooSmall)
	for _, run := range []func(idempotency.Request, idempotency.Operation) (idempotency.Result, error){b.do, b.resume} {
		_, err = run(abandoned, op)
		require.ErrorIs(t, err, idempotency.ErrOverloaded)
		require.Equal(t, before, b.row(abandoned), "the row is untouched")
	}
	require.Zero(t, op.calls.Load())

	place.Leave()
	for _, req := range []idempotency.Request{fresh, abandoned} {
		got, err = b.do(req, op)
		require.NoError(t, err)
		require.Equal(t, 201, got.Response.Status)
	}
	require.Equal(t, onceEach, b.effects(fresh))
	_ = take(t, b.runs) // every run has given its place back
}

// Who only looks is turned away later than who would begin something, and then
// without a question to the database.
func TestDo_tooManyLook(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	b := newGatedBench(t, 1, 1, meter.Configure)
	req := b.request()
	_, err := b.do(req, oneStep())
	require.NoError(t, err)
	take(t, b.runs)
	take(t, b.reads)
	meter.Reset()
	_, err = b.do(req, oneStep())
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	_, err = b.do(b.request(), oneStep())
	require.ErrorIs(t, err, idempotency.ErrOverloaded)
	require.Zero(t, meter.RoundTrips())
}

// A foreign call needs no place, so one is enough for any number of them.
func TestDo_aForeignCallTakesNoPlace(t *testing.T) {
	t.Parallel()
	b := newGatedBench(t, 1, 10)
	held := newGate()
	op := &threeSteps{pay: func(ctx context.Context, run *idempotency.Run) error {
		<-held.opened
		return nil
	}}
	var running []<-chan came
	for range 5 {
		req := b.request()
		claimed := make(chan struct{})
		req.Claimed = func() { close(claimed) }
		running = append(running, b.doAsync(req, op))
		<-claimed
		require.Eventually(t, func() bool { return b.state(req).Point == string(paid) }, patience, tick)
		require.Eventually(t, func() bool {
			place, err := b.runs.Enter(uuid.New())
			if err == nil {
				place.Leave()
			}
			return err == nil
		}, patience, tick)
	}
	held.open(nil)
	for _, done := range running {
		require.NoError(t, (<-done).err)
	}
}

// A step that panics, too, gives its place back.
func TestDo_aPanicGivesThePlaceBack(t *testing.T) {
	t.Parallel()
	b := newGatedBench(t, 1, 10)
	for _, op := range []*threeSteps{
		{reserve: func(context.Context, *idempotency.Run) error { panic("in a call") }},
		{pay: func(context.Context, *idempotency.Run) error { return errNoAnswer }},
	} {
		req := b.request()
		func() {
			defer func() { _ = recover() }()
			_, err := b.do(req, op)
			require.ErrorIs(t, err, errNoAnswer)
		}()
		take(t, b.runs).Leave()
	}
}

// Who waits for a key that is given back waits on while there is no place to take
// it over.
func TestWait_overloaded(t *testing.T) {
	t.Parallel()
	b := newGatedBench(t, 1, 10)
	req, held := b.request(), newGate()
	op := &threeSteps{pay: held.call}
	first := b.doAsync(req, op)
	<-held.reached
	idempotencytest.AgeRun(t, b.pool, req.AccountID, idempotency.KeyID(req.AccountID, req.Key), time.Minute)
	patient, hasty := req, req
	patient.Wait, hasty.Wait = time.Minute, 500*time.Millisecond
	last, second := b.doAsync(patient, op), b.doAsync(hasty, op)
	b.awaitWaiters(2)
	place := take(t, b.runs)
	held.open(errNoAnswer)
	require.ErrorIs(t, (<-first).err, errNoAnswer)
	got := <-second
	require.ErrorIs(t, got.err, idempotency.ErrInProgress)
	require.True(t, got.Waited)
	place.Leave()
	got = <-last
	require.NoError(t, got.err)
	require.Equal(t, 2, got.Attempt)
	require.Equal(t, onceEach, b.effects(req))
}

// A completer has a bound of its own. Were it turned away, a key's attempts would be
// used up for nothing.
func TestCompleter_isNotTurnedAway(t *testing.T) {
	t.Parallel()
	b := newGatedBench(t, 1, 1)
	req, op := b.request(), &threeSteps{}
	b.put(req, op, idempotencytest.State{Point: paid})
	id := idempotency.KeyID(req.AccountID, req.Key)
	idempotencytest.AgeRun(t, b.pool, req.AccountID, id, time.Hour)
	completer, err := idempotency.NewCompleter(b.engine, only(op), idempotency.CompleterConfig{
		Grace: 2 * lockTimeout, MaxAttempts: 1, Limit: 10, Concurrency: 1,
	})
	require.NoError(t, err)
	take(t, b.runs)
	pass, err := completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, idempotency.Pass{Completed: 1}, pass)
}

// Runs leave a part of the connections to those who look.
func TestReads_haveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, connections(4))
	finished := b.request()
	_, err := b.do(finished, oneStep())
	require.NoError(t, err)

	reached, opened := make(chan struct{}, 4), make(chan struct{})
	op := operation{name: "slow_record", steps: func(run *idempotency.Run) idempotency.Steps {
		return idempotency.Steps{idempotency.Started: {Record: func(ctx context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
			if _, err := tx.Exec(ctx, "SELECT 1"); err != nil { // before that it has no connection
				return idempotency.Outcome{}, err
			}
			reached <- struct{}{}
			<-opened
			return idempotency.Finish(answer(run)), nil
		}}}
	}}
	var running []<-chan came
	for range 4 {
		running = append(running, b.doAsync(b.request(), op))
	}
	for range 3 {
		<-reached
	}
	require.Len(t, reached, 0)
	_, err = b.engine.Status(t.Context(), finished.AccountID, idempotency.KeyID(finished.AccountID, finished.Key))
	require.NoError(t, err)
	close(opened)
	for _, done := range running {
		require.NoError(t, (<-done).err)
	}
	b.requireIdle()
}
