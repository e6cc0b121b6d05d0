package limiter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
)

var (
	// ErrOverloaded means that too many requests are in progress.
	ErrOverloaded = errors.New("too many requests are in progress")

	// ErrRateLimited means that the account has its share of the requests in progress.
	ErrRateLimited = errors.New("the account has too many requests in progress")
)

const (
	// shareFactor is α of the dynamic threshold policy (Choudhury and Hahne, 1998): an
	// account may have at most α times as many requests in the backlog as there are
	// free places. With 4 one account gets 4/5 of the backlog, two get 4/9 each, and a
	// new account always finds a place.
	shareFactor = 4

	// rejectionDelay is the delay of a rejection. Clients that ignore Retry-After would
	// otherwise come back as fast as they are rejected, and use up the processors.
	rejectionDelay = 100 * time.Millisecond
)

// Config bounds a [Limiter]. All of it is needed.
type Config struct {
	// Work bounds the requests at work: those that use the processors and the
	// database.
	Work int

	// Backlog bounds the new requests that wait for a permit, and Timeout how long
	// they wait. Half a second of work is a good backlog: most clients wait that long.
	Backlog int
	Timeout time.Duration

	// InFlight bounds the requests in progress, including those that wait for a permit
	// or for the payment provider. They only need memory.
	InFlight int
}

// Limiter admits requests. It is safe for concurrent use.
type Limiter struct {
	config Config

	mu       sync.Mutex
	running  int // requests at work
	inFlight int
	backlog  int                    // new requests that wait
	accounts map[uuid.UUID]*account // with new requests that wait
	turns    []*account             // the same, in turn
	resuming []*waiter              // before all new requests
	rejected uint64
}

// account is an account with new requests that wait.
type account struct {
	id      uuid.UUID
	backlog int
	queue   []*waiter // oldest first
}

// waiter is a request that waits for a permit.
type waiter struct {
	granted chan struct{} // closed when it has the permit
	left    bool          // it has stopped waiting
}

// New returns a limiter.
func New(config Config) (*Limiter, error) {
	if config.Work < 1 || config.Backlog < 1 || config.Timeout <= 0 || config.InFlight < config.Work {
		return nil, errors.New("limiter: Work, Backlog and Timeout must be positive, and InFlight at least Work")
	}
	return &Limiter{config: config, accounts: map[uuid.UUID]*account{}}, nil
}

// Do runs work with a permit, which it passes in the context. It returns
// [ErrOverloaded] or [ErrRateLimited] if there is no permit, otherwise the error of
// work.
func (l *Limiter) Do(ctx context.Context, accountID uuid.UUID, work func(context.Context) error) error {
	p, err := l.acquire(ctx, accountID)
	if err != nil {
		return err
	}
	defer p.release()
	return work(context.WithValue(ctx, permitKey{}, p))
}

// acquire admits a request of the account.
func (l *Limiter) acquire(ctx context.Context, accountID uuid.UUID) (*permit, error) {
	w, err := l.enter(accountID)
	switch {
	case err != nil:
		wait(ctx, rejectionDelay, nil)
		return nil, err
	case w != nil && !wait(ctx, l.config.Timeout, w.granted) && l.leave(accountID, w):
		return nil, ErrOverloaded
	default:
		return &permit{limiter: l, working: true}, nil
	}
}

// wait reports whether the channel was closed before the timeout and the end of ctx.
func wait(ctx context.Context, timeout time.Duration, granted <-chan struct{}) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-granted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// enter admits a new request. It returns nil if the request has its permit, a waiter
// if it has to wait, and an error if a bound is reached.
func (l *Limiter) enter(accountID uuid.UUID) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight >= l.config.InFlight {
		l.rejected++
		return nil, ErrOverloaded
	}
	if l.running < l.config.Work { // then none waits
		l.running++
		l.inFlight++
		return nil, nil
	}
	a := l.accounts[accountID]
	if a == nil {
		a = &account{id: accountID}
	}
	if a.backlog >= shareFactor*(l.config.Backlog-l.backlog) {
		l.rejected++
		if a.backlog < l.backlog {
			return nil, ErrRateLimited // there is room for other accounts
		}
		return nil, ErrOverloaded
	}
	if a.backlog == 0 {
		l.accounts[accountID] = a
		l.turns = append(l.turns, a)
	}
	w := &waiter{granted: make(chan struct{})}
	a.queue = append(a.queue, w)
	a.backlog++
	l.backlog++
	l.inFlight++
	return w, nil
}

// leave removes a request whose time is up. It reports false if the request has its
// permit by now.
func (l *Limiter) leave(accountID uuid.UUID, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.granted:
		return false
	default:
	}
	w.left = true
	l.inFlight--
	l.rejected++
	l.dequeued(l.accounts[accountID])
	return true
}

// dequeued counts a request of the account that does not wait any more.
func (l *Limiter) dequeued(a *account) {
	l.backlog--
	if a.backlog--; a.backlog == 0 {
		delete(l.accounts, a.id)
	}
}

// grant gives free permits to waiters: first to those that resume, then to the
// accounts in turn.
func (l *Limiter) grant() {
	for l.running < l.config.Work {
		w := l.next()
		if w == nil {
			return
		}
		l.running++
		close(w.granted)
	}
}

// next removes the next waiter from its queue; nil if none waits.
func (l *Limiter) next() *waiter {
	if len(l.resuming) > 0 {
		w := l.resuming[0]
		l.resuming = l.resuming[1:]
		return w
	}
	for len(l.turns) > 0 {
		a := l.turns[0]
		l.turns = l.turns[1:]
		for a.backlog > 0 { // otherwise all have left
			w := a.queue[0]
			a.queue = a.queue[1:]
			if w.left {
				continue
			}
			l.dequeued(a)
			if a.backlog > 0 {
				l.turns = append(l.turns, a)
			}
			return w
		}
	}
	return nil
}

// Stats are the counts of a [Limiter].
type Stats struct {
	Capacity int // the most requests that may be at work
	Running  int // requests at work
	Backlog  int // new requests that wait for a permit
	InFlight int // requests in progress
	Rejected uint64
}

// Stats returns the current counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Capacity: l.config.Work, Running: l.running, Backlog: l.backlog, InFlight: l.inFlight, Rejected: l.rejected}
}
