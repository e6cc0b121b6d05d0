package admission_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*admission.Limiter
	t *testing.T
}

// bubble runs a test in a synctest bubble. At the end, no request may be counted.
func bubble(t *testing.T, config admission.Config, test func(*testing.T, *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := admission.New(config)
		test(t, &fixture{l, t})
		synctest.Wait()
		stats := l.Stats()
		stats.Permits, stats.Rejected = 0, 0
		require.Equal(t, admission.Stats{}, stats)
	})
}

type request struct {
	started chan struct{} // closed when it has its permit
	finish  context.CancelFunc
	done    chan error
	waited  time.Duration
}

func (f *fixture) begin(ctx context.Context) *request {
	working, finish := context.WithCancel(context.Background())
	r := &request{started: make(chan struct{}), finish: finish, done: make(chan error, 1)}
	begun := time.Now()
	go func() {
		err := f.Do(ctx, func(context.Context) error {
			close(r.started)
			<-working.Done()
			return nil
		})
		r.waited = time.Since(begun)
		r.done <- err
	}()
	synctest.Wait()
	return r
}

func (r *request) hasPermit() bool {
	select {
	case <-r.started:
		return true
	default:
		return false
	}
}

func end(t *testing.T, requests ...*request) {
	t.Helper()
	for _, r := range requests {
		r.finish()
	}
	for _, r := range requests {
		require.NoError(t, <-r.done)
	}
	synctest.Wait()
}

func small() admission.Config { return admission.Config{Permits: 1, Backlog: 3, Wait: time.Second} }

func TestDo_waitsForAPermit(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		first, second, third := f.begin(t.Context()), f.begin(t.Context()), f.begin(t.Context())
		require.True(t, first.hasPermit())
		require.False(t, second.hasPermit())
		require.Equal(t, admission.Stats{Permits: 1, Running: 1, Backlog: 2}, f.Stats())
		end(t, first)
		require.True(t, second.hasPermit())
		require.False(t, third.hasPermit(), "the oldest first")
		end(t, second, third)
		failed := errors.New("failed")
		require.Equal(t, failed, f.Do(t.Context(), func(context.Context) error { return failed }))
		require.Panics(t, func() { _ = f.Do(t.Context(), func(context.Context) error { panic("bug") }) })
	})
}

func TestDo_rejection(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		first := f.begin(t.Context())
		waiting := []*request{f.begin(t.Context()), f.begin(t.Context()), f.begin(t.Context())}
		rejected := f.begin(t.Context())
		require.ErrorIs(t, <-rejected.done, admission.ErrOverloaded, "the backlog is full")
		require.Equal(t, 250*time.Millisecond, rejected.waited)
		for _, r := range waiting {
			require.ErrorIs(t, <-r.done, admission.ErrOverloaded)
			require.Equal(t, time.Second, r.waited)
			require.False(t, r.hasPermit())
		}
		require.EqualValues(t, 4, f.Stats().Rejected)
		end(t, first)
	})
}

func TestDo_clientGone(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		first := f.begin(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := f.begin(ctx), f.begin(t.Context())
		cancel()
		require.ErrorIs(t, <-gone.done, context.Canceled)
		end(t, first, stays)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A run that waits for the provider lends its permit, and resumes without a wait although another
// request has it.
func TestSuspend(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		arrived, respond, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
		transport := admission.SuspendDuring(roundTripper(func(*http.Request) (*http.Response, error) {
			close(arrived)
			<-respond
			return &http.Response{Body: http.NoBody}, nil
		}))
		done := make(chan error, 1)
		go func() {
			done <- f.Do(t.Context(), func(ctx context.Context) error {
				_, err := transport.RoundTrip((&http.Request{}).WithContext(ctx)) //nolint:bodyclose // it has none
				<-finish
				return err
			})
		}()
		<-arrived
		other, waiting := f.begin(t.Context()), f.begin(t.Context())
		require.True(t, other.hasPermit())
		require.Equal(t, admission.Stats{Permits: 1, Running: 1, Backlog: 1}, f.Stats())
		close(respond)
		synctest.Wait()
		require.Equal(t, admission.Stats{Permits: 1, Running: 2, Backlog: 1}, f.Stats())
		end(t, other)
		require.False(t, waiting.hasPermit(), "the run has it")
		close(finish)
		require.NoError(t, <-done)
		end(t, waiting)
		admission.Suspend(t.Context())() // without a permit
	})
}
