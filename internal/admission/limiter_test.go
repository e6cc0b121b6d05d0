package admission_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var alice, bob, carol = uuid.New(), uuid.New(), uuid.New()

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

func (f *fixture) begin(ctx context.Context, account uuid.UUID) *request {
	working, finish := context.WithCancel(context.Background())
	r := &request{started: make(chan struct{}), finish: finish, done: make(chan error, 1)}
	begun := time.Now()
	go func() {
		err := f.Do(ctx, account, func(context.Context) error {
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

func small() admission.Config {
	return admission.Config{Permits: 1, Backlog: 10, Wait: time.Second, InFlight: 100}
}

func TestDo_waitsForAPermit(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		first, second := f.begin(t.Context(), alice), f.begin(t.Context(), alice)
		require.True(t, first.hasPermit())
		require.False(t, second.hasPermit())
		require.Equal(t, admission.Stats{Permits: 1, Running: 1, Backlog: 1, InFlight: 2}, f.Stats())
		end(t, first)
		require.True(t, second.hasPermit())
		end(t, second)
		failed := errors.New("failed")
		require.Equal(t, failed, f.Do(t.Context(), alice, func(context.Context) error { return failed }))
		require.Panics(t, func() { _ = f.Do(t.Context(), alice, func(context.Context) error { panic("bug") }) })
	})
}

func TestDo_timeout(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		first, second := f.begin(t.Context(), alice), f.begin(t.Context(), alice)
		require.ErrorIs(t, <-second.done, admission.ErrOverloaded)
		require.Equal(t, 2*time.Second, second.waited)
		require.False(t, second.hasPermit())
		require.EqualValues(t, 1, f.Stats().Rejected)
		end(t, first)
	})
}

func TestDo_clientGone(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		first := f.begin(t.Context(), alice)
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := f.begin(ctx, bob), f.begin(t.Context(), carol)
		cancel()
		require.ErrorIs(t, <-gone.done, context.Canceled)
		end(t, first, stays)
	})
}

func TestDo_backlogIsFull(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		all := []*request{f.begin(t.Context(), alice)}
		for range 8 {
			all = append(all, f.begin(t.Context(), alice))
		}
		rejected := f.begin(t.Context(), alice)
		require.ErrorIs(t, <-rejected.done, admission.ErrOverloaded, "no other account is in the backlog")
		require.Equal(t, 100*time.Millisecond, rejected.waited)
		all = append(all, f.begin(t.Context(), bob))
		require.Equal(t, 9, f.Stats().Backlog)
		rejected = f.begin(t.Context(), alice)
		require.ErrorIs(t, <-rejected.done, admission.ErrRateLimited)
		require.EqualValues(t, 2, f.Stats().Rejected)
		end(t, all...)
	})
}

func work(duration time.Duration) func(context.Context) error {
	return func(context.Context) error { <-time.After(duration); return nil }
}

func (f *fixture) insist(clients int, duration time.Duration, rejected func(time.Duration)) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	var working atomic.Int64
	for i := range clients {
		running.Go(func() {
			// One after the other, or the scheduler decides how many rejections are counted at once.
			<-time.After(time.Duration(i) * 100 * time.Millisecond / time.Duration(clients))
			for ctx.Err() == nil {
				begun := time.Now()
				err := f.Do(ctx, alice, func(context.Context) error {
					require.EqualValues(f.t, 1, working.Add(1))
					defer working.Add(-1)
					return work(duration)(ctx)
				})
				if err != nil && ctx.Err() == nil {
					rejected(time.Since(begun))
				}
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

func fast() admission.Config {
	return admission.Config{Permits: 1, Wait: time.Second, Backlog: 1000, InFlight: 10_000}
}

func TestDo_speed(t *testing.T) {
	for name, test := range map[string]struct {
		work    time.Duration
		clients int
		backlog int // four fifths of what the limiter serves in a second
	}{
		"fast": {work: 2 * time.Millisecond, clients: 600, backlog: 400},
		"slow": {work: 20 * time.Millisecond, clients: 150, backlog: 40},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fast(), func(t *testing.T, f *fixture) {
				stop := f.insist(test.clients, test.work, func(time.Duration) {})
				defer stop()
				<-time.After(5 * time.Second) // by the bubble's clock
				require.InEpsilon(t, test.backlog, f.Stats().Backlog, 0.05)
				require.NoError(t, f.Do(t.Context(), bob, work(0)), "another account")
			})
		})
	}
}

func TestDo_slowRejections(t *testing.T) {
	bubble(t, fast(), func(t *testing.T, f *fixture) {
		const warmUp, window = 2 * time.Second, 5 * time.Second
		var rejected atomic.Int64
		start := time.Now()
		stop := f.insist(1200, 2*time.Millisecond, func(delay time.Duration) {
			if now := time.Since(start); now > warmUp && now < warmUp+window {
				require.Equal(t, fast().Wait, delay)
				rejected.Add(1)
			}
		})
		<-time.After(warmUp + window)
		stop()
		require.InEpsilon(t, 800*window.Seconds(), rejected.Load(), 0.05, "once a second for each client outside of the backlog")

		<-time.After(30 * time.Second)
		stop = f.insist(420, 2*time.Millisecond, func(delay time.Duration) { require.Equal(t, 100*time.Millisecond, delay) })
		<-time.After(5 * time.Second)
		stop()
	})
}

func TestDo_burst(t *testing.T) {
	bubble(t, fast(), func(t *testing.T, f *fixture) {
		for range 3 {
			var clients sync.WaitGroup
			for range 2500 {
				clients.Go(func() {
					if begun := time.Now(); f.Do(t.Context(), alice, work(time.Millisecond)) != nil {
						require.Equal(t, 100*time.Millisecond, time.Since(begun))
					}
				})
			}
			clients.Wait()
		}
		require.Greater(t, f.Stats().Rejected, uint64(3*1500))
	})
}

func TestDo_independentClients(t *testing.T) {
	bubble(t, fast(), func(t *testing.T, f *fixture) {
		var rejected atomic.Int64
		var clients sync.WaitGroup
		for range 10_000 {
			clients.Go(func() {
				if begun := time.Now(); f.Do(t.Context(), alice, work(3*time.Millisecond)) != nil {
					require.Equal(t, 100*time.Millisecond, time.Since(begun))
					rejected.Add(1)
				}
			})
			<-time.After(time.Millisecond)
		}
		clients.Wait()
		require.Greater(t, rejected.Load(), int64(6000))
	})
}

func TestDo_tooManyInFlight(t *testing.T) {
	bubble(t, admission.Config{Permits: 1, Backlog: 100, Wait: time.Second, InFlight: 5}, func(t *testing.T, f *fixture) {
		var all []*request
		for range 4 {
			all = append(all, f.begin(t.Context(), alice))
		}
		require.ErrorIs(t, <-f.begin(t.Context(), alice).done, admission.ErrOverloaded)
		all = append(all, f.begin(t.Context(), bob))
		require.ErrorIs(t, <-f.begin(t.Context(), carol).done, admission.ErrOverloaded)
		end(t, all...)
	})
}

func TestDo_order(t *testing.T) {
	config := small()
	config.Backlog = 100
	bubble(t, config, func(t *testing.T, f *fixture) {
		running := f.begin(t.Context(), uuid.New())
		var requests []*request
		for _, account := range []uuid.UUID{alice, alice, alice, bob, bob, carol} {
			requests = append(requests, f.begin(t.Context(), account))
		}
		for _, next := range []int{0, 3, 5, 1, 4, 2} {
			end(t, running)
			running = requests[next]
			require.True(t, running.hasPermit(), next)
			require.Equal(t, 1, f.Stats().Running)
		}
		end(t, running)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSuspend(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		arrived, respond := make(chan struct{}), make(chan struct{})
		transport := admission.SuspendDuring(roundTripper(func(*http.Request) (*http.Response, error) {
			close(arrived)
			<-respond
			return &http.Response{Body: http.NoBody}, nil
		}))
		done := make(chan error, 1)
		go func() {
			done <- f.Do(t.Context(), alice, func(ctx context.Context) error {
				_, err := transport.RoundTrip((&http.Request{}).WithContext(ctx)) //nolint:bodyclose // it has none
				return err
			})
		}()
		<-arrived
		other, waiting := f.begin(t.Context(), bob), f.begin(t.Context(), bob)
		require.True(t, other.hasPermit())
		require.Equal(t, admission.Stats{Permits: 1, Running: 1, Backlog: 1, InFlight: 3}, f.Stats())
		close(respond)
		synctest.Wait()
		require.Empty(t, done, "the permit is taken")
		<-time.After(900 * time.Millisecond)
		end(t, other)
		require.NoError(t, <-done, "before new requests")
		end(t, waiting)
		admission.Suspend(t.Context())() // without a permit
	})
}
