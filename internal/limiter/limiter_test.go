package limiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var alice, bob, carol = uuid.New(), uuid.New(), uuid.New()

// fixture is a limiter in a synctest bubble.
type fixture struct {
	*limiter.Limiter
	t *testing.T
}

// bubble also checks at the end that no request is counted.
func bubble(t *testing.T, config limiter.Config, test func(*testing.T, *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := limiter.New(config)
		require.NoError(t, err)
		test(t, &fixture{l, t})
		synctest.Wait()
		stats := l.Stats()
		stats.Capacity, stats.Rejected = 0, 0
		require.Equal(t, limiter.Stats{}, stats)
	})
}

type request struct {
	started chan struct{} // closed when it has its permit
	finish  context.CancelFunc
	done    chan error // receives its error
	waited  time.Duration
}

// begin starts a request, which works until finish is called.
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

func small() limiter.Config {
	return limiter.Config{Work: 1, Backlog: 10, Wait: time.Second, InFlight: 100}
}

func TestDo_waitsForAPermit(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		first, second := f.begin(t.Context(), alice), f.begin(t.Context(), alice)
		require.True(t, first.hasPermit())
		require.False(t, second.hasPermit())
		require.Equal(t, limiter.Stats{Capacity: 1, Running: 1, Backlog: 1, InFlight: 2}, f.Stats())
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
		require.ErrorIs(t, <-second.done, limiter.ErrOverloaded)
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

// One account gets four fifths of the backlog. Rejections are delayed.
func TestDo_backlogIsFull(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		all := []*request{f.begin(t.Context(), alice)}
		for range 8 {
			all = append(all, f.begin(t.Context(), alice))
		}
		rejected := f.begin(t.Context(), alice)
		require.ErrorIs(t, <-rejected.done, limiter.ErrOverloaded, "no other account is in the backlog")
		require.Equal(t, 100*time.Millisecond, rejected.waited)
		all = append(all, f.begin(t.Context(), bob))
		require.Equal(t, 9, f.Stats().Backlog)
		rejected = f.begin(t.Context(), alice)
		require.ErrorIs(t, <-rejected.done, limiter.ErrRateLimited)
		require.EqualValues(t, 2, f.Stats().Rejected)
		end(t, all...)
	})
}

func work(duration time.Duration) func(context.Context) error {
	return func(context.Context) error { <-time.After(duration); return nil }
}

// insist runs clients that send the next request after each response, and passes the
// delay of each rejection to rejected.
func (f *fixture) insist(clients int, duration time.Duration, rejected func(time.Duration)) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for ctx.Err() == nil {
				if begun := time.Now(); f.Do(ctx, alice, work(duration)) != nil && ctx.Err() == nil {
					rejected(time.Since(begun))
				}
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

func fast() limiter.Config {
	return limiter.Config{Work: 1, Wait: time.Second, Backlog: 1000, InFlight: 10_000}
}

// The backlog is the work of one Wait at the measured rate.
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
		full := f.insist(420, 2*time.Millisecond, func(delay time.Duration) { require.Equal(t, 100*time.Millisecond, delay) })
		<-time.After(5 * time.Second)
		full()
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
	bubble(t, limiter.Config{Work: 1, Backlog: 100, Wait: time.Second, InFlight: 5}, func(t *testing.T, f *fixture) {
		var all []*request
		for range 4 {
			all = append(all, f.begin(t.Context(), alice))
		}
		require.ErrorIs(t, <-f.begin(t.Context(), alice).done, limiter.ErrOverloaded)
		all = append(all, f.begin(t.Context(), bob))
		require.ErrorIs(t, <-f.begin(t.Context(), carol).done, limiter.ErrOverloaded)
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

// A request that waits for the provider holds no permit, and gets one again before new
// requests, without a timeout.
func TestTransport_suspendsThePermit(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		arrived, respond := make(chan struct{}), make(chan struct{})
		response := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		transport := limiter.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
			close(arrived)
			<-respond
			return response, nil
		}))
		done := make(chan error, 1)
		go func() {
			done <- f.Do(t.Context(), alice, func(ctx context.Context) error {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider", nil)
				require.NoError(t, err)
				got, err := transport.RoundTrip(r) //nolint:bodyclose // it has none
				require.Same(t, response, got)
				return err
			})
		}()
		<-arrived
		other, waiting := f.begin(t.Context(), bob), f.begin(t.Context(), bob)
		require.True(t, other.hasPermit())
		require.Equal(t, limiter.Stats{Capacity: 1, Running: 1, Backlog: 1, InFlight: 3}, f.Stats())
		close(respond)
		synctest.Wait()
		require.Empty(t, done, "the permit is taken")
		<-time.After(900 * time.Millisecond)
		end(t, other)
		require.NoError(t, <-done)
		end(t, waiting)
	})
}

func TestTransport_noPermit(t *testing.T) {
	t.Parallel()
	want := &http.Response{Body: http.NoBody}
	transport := limiter.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return want, nil }))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider", nil)
	require.NoError(t, err)
	got, err := transport.RoundTrip(r) //nolint:bodyclose // it has none
	require.NoError(t, err)
	require.Same(t, want, got)
}

// A request that waits for another one holds no permit.
func TestAwait(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *fixture) {
		done := make(chan struct{})
		gone, leave := context.WithCancel(t.Context())
		results := make(chan error, 2)
		for _, ctx := range []context.Context{t.Context(), gone} {
			go func() {
				results <- f.Do(t.Context(), alice, func(permitted context.Context) error {
					permitted, cancel := context.WithCancel(permitted)
					defer context.AfterFunc(ctx, cancel)()
					return limiter.Await(permitted, done)
				})
			}()
			synctest.Wait()
		}
		require.Equal(t, limiter.Stats{Capacity: 1, InFlight: 2}, f.Stats())
		leave()
		require.ErrorIs(t, <-results, context.Canceled)
		close(done)
		require.NoError(t, <-results)
		require.NoError(t, limiter.Await(t.Context(), done), "without a permit")
	})
}

func TestNew_rejectsBounds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*limiter.Config){
		"Work":     func(c *limiter.Config) { c.Work = 0 },
		"Backlog":  func(c *limiter.Config) { c.Backlog = 0 },
		"Wait":     func(c *limiter.Config) { c.Wait = 0 },
		"InFlight": func(c *limiter.Config) { c.InFlight = 0 },
	} {
		config := small()
		change(&config)
		_, err := limiter.New(config)
		require.ErrorContains(t, err, name)
	}
}

// Under random load, no bound is exceeded and each request ends.
func TestDo_bounds(t *testing.T) {
	t.Parallel()
	config := limiter.Config{Work: 3, Backlog: 20, Wait: 20 * time.Millisecond, InFlight: 30}
	l, err := limiter.New(config)
	require.NoError(t, err)
	var running, inFlight, admitted atomic.Int64
	transport := limiter.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: http.NoBody}, nil
	}))
	accounts := []uuid.UUID{alice, bob, carol}
	var clients sync.WaitGroup
	for n := range 60 {
		clients.Go(func() {
			for range 50 {
				_ = l.Do(t.Context(), accounts[n%3], func(ctx context.Context) error {
					admitted.Add(1)
					require.LessOrEqual(t, inFlight.Add(1), int64(config.InFlight))
					defer inFlight.Add(-1)
					require.LessOrEqual(t, running.Add(1), int64(config.Work))
					if rand.IntN(2) == 0 {
						r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider", nil)
						require.NoError(t, err)
						running.Add(-1)               // before the transport returns the permit
						_, _ = transport.RoundTrip(r) //nolint:bodyclose // it has none
						require.LessOrEqual(t, running.Add(1), int64(config.Work))
					}
					running.Add(-1)
					return nil
				})
			}
		})
	}
	clients.Wait()
	require.Positive(t, admitted.Load())
	stats := l.Stats()
	require.Equal(t, limiter.Stats{Capacity: 3, Rejected: stats.Rejected}, stats)
}
