package admission

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// ErrOverloaded means that too many requests are in progress.
var ErrOverloaded = errors.New("too many requests are in progress")

// rejectionDelay is how long a client that ignores Retry-After waits before it sends again.
const rejectionDelay = 250 * time.Millisecond

// Config bounds a [Limiter]. All fields are required.
type Config struct {
	Permits int           // requests at work: they use the processors and the database
	Backlog int           // requests that wait for a permit
	Wait    time.Duration // how long they wait
}

// Limiter admits requests. It is safe for concurrent use.
type Limiter struct {
	config Config

	mu       sync.Mutex
	running  int       // exceeds the permits while runs resume
	backlog  list.List // of chan struct{}, closed with the permit; oldest first; empty while a permit is free
	rejected uint64
}

// New returns a limiter.
func New(config Config) *Limiter { return &Limiter{config: config} }

// Do runs work with a permit, which its context carries, or returns [ErrOverloaded].
func (l *Limiter) Do(ctx context.Context, work func(context.Context) error) error {
	if err := l.acquire(ctx); err != nil {
		return err
	}
	defer l.release()
	return work(context.WithValue(ctx, permitKey{}, l))
}

func (l *Limiter) acquire(ctx context.Context) error {
	l.mu.Lock()
	if l.running < l.config.Permits {
		l.running++
		l.mu.Unlock()
		return nil
	}
	if l.backlog.Len() >= l.config.Backlog {
		l.rejected++
		l.mu.Unlock()
		return wait(ctx, rejectionDelay, nil)
	}
	permit := make(chan struct{})
	element := l.backlog.PushBack(permit)
	l.mu.Unlock()

	err := wait(ctx, l.config.Wait, permit)
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-permit: // perhaps at the end of the wait
		return nil
	default:
		l.backlog.Remove(element)
		l.rejected++
		return err
	}
}

func wait(ctx context.Context, limit time.Duration, permit <-chan struct{}) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-permit:
		return nil
	case <-timer.C:
		return ErrOverloaded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if first := l.backlog.Front(); first != nil && l.running < l.config.Permits {
		l.running++
		close(l.backlog.Remove(first).(chan struct{}))
	}
}

func (l *Limiter) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running++
}

type permitKey struct{}

// Suspend returns the permit in ctx, if there is one, while its request only waits, for example
// for the payment provider. resume takes it again at once.
func Suspend(ctx context.Context) (resume func()) {
	l, admitted := ctx.Value(permitKey{}).(*Limiter)
	if !admitted {
		return func() {}
	}
	l.release()
	return l.resume
}

// SuspendDuring calls [Suspend] while next sends a request. As the program's only transport,
// it covers each call to a provider.
func SuspendDuring(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	defer Suspend(r.Context())()
	return t.next.RoundTrip(r)
}

// Stats are the counts of a [Limiter].
type Stats struct {
	Permits, Running, Backlog int
	Rejected                  uint64
}

// Stats returns the counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{l.config.Permits, l.running, l.backlog.Len(), l.rejected}
}
