package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

// recorder is a tracer that writes down what it sees, one line for each span in
// the order of their ends, behind those that they are inside of.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

type spanKey struct{}

// span is what the recorder keeps in a context.
type span struct{ path string }

func current(ctx context.Context) *span {
	s, _ := ctx.Value(spanKey{}).(*span)
	return s
}

func (r *recorder) Start(ctx context.Context, s idempotency.Span) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.TrimSuffix(string(s.Kind)+" "+s.Name, " ")
	if outer := current(ctx); outer != nil {
		path = outer.path + " > " + path
	}
	return context.WithValue(ctx, spanKey{}, &span{path: path})
}

func (r *recorder) End(ctx context.Context, result idempotency.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := current(ctx)
	line := fmt.Sprintf("%s: %d, %s to %s", s.path, result.Attempt, result.From, result.To)
	if result.Replayed {
		line += ", replayed"
	}
	if err != nil {
		line += ", " + err.Error()
	}
	r.lines = append(r.lines, line)
}

// seen is what was recorded since it was last asked.
func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

// traced gives the bench an engine with a tracer.
func (b *bench) traced(tracer idempotency.Tracer) {
	b.t.Helper()
	var err error
	b.engine, err = idempotency.New(b.pool, idempotency.Config{
		LockTimeout: lockTimeout,
		Clock:       time.Now,
		Tracer:      tracer,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(b.t, err)
}

// What a tracer sees of a request whose second call fails, of the retry that ends
// it, of a replay, and of one who resumes what is finished.
func TestTracer(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), &recorder{}
	b.traced(r)
	req, op := b.request(), &threeSteps{}
	op.pay = func(context.Context, *idempotency.Run) error { return errNoAnswer }

	_, err := b.do(req, op)
	require.Equal(t, errNoAnswer, err)
	require.Equal(t, []string{
		"run three_steps > step started > transaction: 1, started to reserved",
		"run three_steps > step started: 1, started to reserved",
		"run three_steps > step reserved > transaction: 1, reserved to paid",
		"run three_steps > step reserved: 1, reserved to paid",
		"run three_steps > step paid: 1, paid to paid, the provider did not answer",
		"run three_steps: 1, started to paid, the provider did not answer",
	}, r.seen())

	op.pay = nil
	_, err = b.do(req, op)
	require.NoError(t, err)
	require.Equal(t, []string{
		"run three_steps > step paid > transaction: 2, paid to finished",
		"run three_steps > step paid: 2, paid to finished",
		"run three_steps: 2, paid to finished",
	}, r.seen())

	_, err = b.do(req, op)
	require.NoError(t, err)
	_, err = b.resume(req, op)
	require.NoError(t, err)
	const replay = "run three_steps: 2, finished to finished, replayed"
	require.Equal(t, []string{replay, replay}, r.seen())

	req.Params = []byte(`{"amount":1}`)
	_, err = b.do(req, op)
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
	require.Equal(t, []string{
		"run three_steps: 2, finished to finished, " + idempotency.ErrKeyReused.Error(),
	}, r.seen())
}

func TestTracer_panic(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), &recorder{}
	b.traced(r)
	op := &threeSteps{reserve: func(context.Context, *idempotency.Run) error { panic("bug") }}
	require.Panics(t, func() { _, _ = b.do(b.request(), op) })
	require.Equal(t, []string{
		"run three_steps > step reserved: 0,  to , the run panicked",
		"run three_steps: 0,  to , the run panicked",
	}, r.seen()[2:])
}

// A tracer costs no round trip.
func TestTracer_cost(t *testing.T) {
	t.Parallel()
	meter := idempotencytest.NewMeter()
	b := newBench(t, meter.Configure)
	b.traced(&recorder{})
	run := func() {
		req, failing := b.request(), &threeSteps{}
		failing.pay = func(context.Context, *idempotency.Run) error { return errors.New("no") }
		_, err := b.do(req, failing)
		require.Error(t, err)
		_, err = b.do(req, &threeSteps{})
		require.NoError(t, err)
	}
	run() // prepares the statements
	meter.Reset()
	run()
	require.Equal(t, 4+3, meter.RoundTrips())
	require.Equal(t, 2+1, meter.Commits())
}
