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

	// ErrRateLimited means that the account has more than its share of the requests in
	// progress.
	ErrRateLimited = errors.New("the account has too many requests in progress")
)

// Config bounds a [Limiter]. All of it is needed.
type Config struct {
	// Work bounds the requests at work: those that use the processors and the
	// database.
	Work int

	// InFlight bounds the requests in progress, including those that wait for a permit
	// or the payment provider. They only need memory.
	InFlight int

	// PerAccount is how many of these one account may have.
	PerAccount int

	// Wait is how long a new request waits for its permit.
	Wait time.Duration
}

// Limiter admits requests. It is safe for concurrent use.
type Limiter struct {
	config Config

	mu       sync.Mutex
	running  int
	inFlight int
	accounts map[uuid.UUID]*account // with requests in progress
	resuming []*waiter              // before all others
	turns    []*account             // with new requests that wait, each in turn
	rejected uint64
}

// account is the state of an account.
type account struct {
	inFlight int
	waiting  []*waiter
}

// waiter is a request that waits for a permit.
type waiter struct {
	granted chan struct{} // closed when it has the permit
	left    bool          // it has stopped waiting
}

// New returns a limiter.
func New(config Config) (*Limiter, error) {
	if config.Work < 1 || config.InFlight < config.Work || config.PerAccount < 1 || config.Wait <= 0 {
		return nil, errors.New("limiter: Work, PerAccount and Wait must be positive, and InFlight at least Work")
	}
	return &Limiter{config: config, accounts: map[uuid.UUID]*account{}}, nil
}

// Do runs work with a permit, which it passes in the context. It returns
// [ErrOverloaded] or [ErrRateLimited] if there was no permit in time, otherwise the
// error of work.
func (l *Limiter) Do(ctx context.Context, accountID uuid.UUID, work func(context.Context) error) error {
	p, err := l.acquire(ctx, accountID)
	if err != nil {
		return err
	}
	defer p.release()
	return work(context.WithValue(ctx, permitKey{}, p))
}

// acquire admits a request of the account. A rejection comes after Wait, also if a
// bound is reached: clients that ignore Retry-After would otherwise come back as
// fast as they are rejected.
func (l *Limiter) acquire(ctx context.Context, accountID uuid.UUID) (*permit, error) {
	p := &permit{limiter: l, accountID: accountID, working: true}
	w, rejection := l.enter(accountID)
	if rejection == nil && w == nil {
		return p, nil
	}
	timeout := time.NewTimer(l.config.Wait)
	defer timeout.Stop()
	var granted <-chan struct{}
	if w != nil {
		granted = w.granted
	}
	select {
	case <-granted:
		return p, nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	if rejection == nil {
		rejection = l.leave(accountID, w)
	}
	if rejection != nil {
		return nil, rejection
	}
	return p, nil
}

// enter counts a request of the account. It returns nil if the request has its
// permit, a waiter if it has to wait, and the reason if a bound is reached.
func (l *Limiter) enter(accountID uuid.UUID) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[accountID]
	if a == nil {
		a = &account{}
	}
	switch {
	case l.inFlight >= l.config.InFlight:
		l.rejected++
		return nil, ErrOverloaded
	case a.inFlight >= l.config.PerAccount:
		l.rejected++
		return nil, ErrRateLimited
	}
	l.accounts[accountID] = a
	a.inFlight++
	l.inFlight++
	if l.running < l.config.Work { // then none waits
		l.running++
		return nil, nil
	}
	w := &waiter{granted: make(chan struct{})}
	if len(a.waiting) == 0 {
		l.turns = append(l.turns, a)
	}
	a.waiting = append(a.waiting, w)
	return w, nil
}

// leave removes a request whose time is up. It returns nil if the request has its
// permit by now.
func (l *Limiter) leave(accountID uuid.UUID, w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	default:
	}
	w.left = true
	l.rejected++
	a := l.accounts[accountID]
	greedy := len(l.accounts) > 1 && a.inFlight*len(l.accounts) > l.inFlight
	l.exit(accountID)
	if greedy {
		return ErrRateLimited
	}
	return ErrOverloaded
}

// exit counts a request that is not in progress any more.
func (l *Limiter) exit(accountID uuid.UUID) {
	l.inFlight--
	a := l.accounts[accountID]
	if a.inFlight--; a.inFlight == 0 {
		delete(l.accounts, accountID)
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
		for len(a.waiting) > 0 && a.waiting[0].left {
			a.waiting = a.waiting[1:]
		}
		if len(a.waiting) == 0 {
			continue
		}
		w := a.waiting[0]
		a.waiting = a.waiting[1:]
		if len(a.waiting) > 0 {
			l.turns = append(l.turns, a)
		}
		return w
	}
	return nil
}

// Stats are the counts of a [Limiter].
type Stats struct {
	Capacity int // the most requests that may be at work
	Running  int // requests at work
	InFlight int // requests in progress, those that wait included
	Rejected uint64
}

// Stats returns the current counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Capacity: l.config.Work, Running: l.running, InFlight: l.inFlight, Rejected: l.rejected}
}
