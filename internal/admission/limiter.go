package admission

import (
	"container/list"
	"context"
	"errors"
	"net/http"
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
	// account may have α times as many requests as the bound leaves free, so one account
	// gets 4/5 of the bound, and another one is always admitted.
	shareFactor = 4

	// A rejection is sent after rejectionDelay. If more of them than the backlog's limit are
	// delayed at once, for as long as Wait, most clients seem to ignore Retry-After: then the
	// delay is Wait, until slowRejections is over. A burst of requests, or a pause of the
	// database, ends earlier.
	rejectionDelay = 100 * time.Millisecond
	slowRejections = 10 * time.Second

	// The interval between permits is averaged over averageOver requests. A longer pause,
	// such as a restart of the database, counts as maxInterval.
	averageOver = 64
	maxInterval = 50 * time.Millisecond
)

// Config bounds a [Limiter]. All fields are required, and InFlight is at least Permits.
type Config struct {
	Permits int // requests at work: they use the processors and the database
	Backlog int // requests that wait for their first permit

	// Wait bounds the wait at the measured rate; without a permit, it ends after twice Wait.
	Wait time.Duration

	InFlight int // all requests, those that wait included, because each needs memory
}

// Limiter admits requests. It is safe for concurrent use.
type Limiter struct {
	config Config

	mu       sync.Mutex
	stats    Stats
	accounts map[uuid.UUID]*account // those with requests in progress
	turns    list.List              // each *account whose new requests wait; the first one is next
	resuming list.List              // the waiter of each request that resumes; new ones come after them

	interval   time.Duration // average time between two permits for requests that waited
	lastPermit time.Time     // when such a request got its permit last; zero if none waits now

	rejecting int       // how many rejections are delayed now
	notManyAt time.Time // when they last were no more than the backlog's limit
	slowUntil time.Time // until then, a rejection is delayed by Wait
}

type account struct {
	id       uuid.UUID
	inFlight int
	queue    list.List     // the waiter of each new request that waits, oldest first
	turn     *list.Element // its element in turns; nil if the queue is empty
}

// waiter is a channel that is closed when its request has a permit.
type waiter chan struct{}

// New returns a limiter.
func New(config Config) *Limiter {
	return &Limiter{config: config, stats: Stats{Permits: config.Permits}, accounts: map[uuid.UUID]*account{}}
}

// Do runs work with a permit, which its context carries, or returns [ErrOverloaded] or
// [ErrRateLimited].
func (l *Limiter) Do(ctx context.Context, accountID uuid.UUID, work func(context.Context) error) error {
	p, element, err := l.enter(accountID)
	if err != nil {
		l.delayRejection(ctx)
		return err
	}
	if element != nil {
		if err := wait(ctx, 2*l.config.Wait, element.Value.(waiter)); err != nil && l.leave(p, element) {
			return err
		}
	}
	defer p.release()
	return work(context.WithValue(ctx, permitKey{}, p))
}

// delayRejection waits before a rejection is sent. During slow rejections, and for Wait after them,
// it does not judge whether there are many, because the delay itself makes them many.
func (l *Limiter) delayRejection(ctx context.Context) {
	l.mu.Lock()
	l.rejecting++
	now, delay := time.Now(), rejectionDelay
	if l.rejecting <= l.backlogBound() || now.Sub(l.slowUntil) <= l.config.Wait {
		l.notManyAt = now
	}
	if now.Sub(l.notManyAt) > l.config.Wait {
		l.slowUntil = now.Add(slowRejections)
	}
	if now.Before(l.slowUntil) {
		delay = l.config.Wait
	}
	l.mu.Unlock()
	_ = wait(ctx, delay, nil)
	l.mu.Lock()
	l.rejecting--
	l.mu.Unlock()
}

func wait(ctx context.Context, timeout time.Duration, w waiter) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w:
		return nil
	case <-timer.C:
		return ErrOverloaded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter returns the request's element in the queue unless it has its permit at once.
func (l *Limiter) enter(accountID uuid.UUID) (*permit, *list.Element, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[accountID]
	if a == nil {
		a = &account{id: accountID}
	}
	err := share(a.inFlight, l.stats.InFlight, l.config.InFlight)
	busy := l.stats.Running >= l.config.Permits
	if busy && err == nil {
		bound := l.backlogBound()
		if a.queue.Len() == 0 {
			// The bound may have fallen below what other accounts have in the backlog.
			bound = min(bound+bound/4, l.config.Backlog)
		}
		err = share(a.queue.Len(), l.stats.Backlog, bound)
	}
	if err != nil {
		l.stats.Rejected++
		return nil, nil, err
	}
	l.accounts[accountID] = a
	a.inFlight++
	l.stats.InFlight++
	p := &permit{limiter: l, account: a}
	if !busy { // no request waits while a permit is free
		l.stats.Running++
		return p, nil, nil
	}
	if a.turn == nil {
		a.turn = l.turns.PushBack(a)
	}
	l.stats.Backlog++
	return p, a.queue.PushBack(make(waiter)), nil
}

// backlogBound is how many requests get their permit in time.
func (l *Limiter) backlogBound() int {
	if l.interval == 0 {
		return l.config.Backlog
	}
	return min(l.config.Backlog, max(l.config.Permits, int(l.config.Wait/l.interval)))
}

// share returns an error if an account with n of all requests may have no more.
func share(n, all, bound int) error {
	switch {
	case n < shareFactor*(bound-all):
		return nil
	case n < all && all < bound: // there is room for other accounts
		return ErrRateLimited
	default:
		return ErrOverloaded
	}
}

// leave removes a request that waits, or reports false if it has its permit.
func (l *Limiter) leave(p *permit, element *list.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-element.Value.(waiter):
		return false
	default:
	}
	l.dequeue(p.account, element)
	l.exit(p.account)
	l.stats.Rejected++
	return true
}

func (l *Limiter) exit(a *account) {
	l.stats.InFlight--
	if a.inFlight--; a.inFlight == 0 {
		delete(l.accounts, a.id)
	}
}

func (l *Limiter) dequeue(a *account, element *list.Element) waiter {
	l.stats.Backlog--
	w := a.queue.Remove(element).(waiter)
	if a.queue.Len() == 0 {
		l.turns.Remove(a.turn)
		a.turn = nil
	}
	return w
}

// grant gives free permits to requests that resume, then to the accounts in turn.
func (l *Limiter) grant() {
	for l.stats.Running < l.config.Permits {
		var w waiter
		if first := l.resuming.Front(); first != nil {
			w = l.resuming.Remove(first).(waiter)
		} else if turn := l.turns.Front(); turn != nil {
			a := turn.Value.(*account)
			l.turns.MoveToBack(turn)
			w = l.dequeue(a, a.queue.Front())
			l.measure(time.Now())
		} else {
			return
		}
		l.stats.Running++
		close(w)
	}
}

func (l *Limiter) measure(now time.Time) {
	if !l.lastPermit.IsZero() {
		l.interval += (min(now.Sub(l.lastPermit), maxInterval) - l.interval) / averageOver
	}
	l.lastPermit = now
	if l.stats.Backlog == 0 {
		l.lastPermit = time.Time{}
	}
}

// Stats are the counts of a [Limiter].
type Stats struct {
	Permits  int // as configured
	Running  int // requests at work
	Backlog  int // new requests that wait for a permit
	InFlight int // requests in progress
	Rejected uint64
}

// Stats returns the counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// permit is for one goroutine.
type permit struct {
	limiter *Limiter
	account *account
}

type permitKey struct{}

// release ends the request.
func (p *permit) release() {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exit(p.account)
	l.stats.Running--
	l.grant()
}

// Suspend returns the permit in ctx, if there is one, while its request only waits, for example
// for the payment provider. resume takes it again, before all new requests.
func Suspend(ctx context.Context) (resume func()) {
	p, admitted := ctx.Value(permitKey{}).(*permit)
	if !admitted {
		return func() {}
	}
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Running--
	l.grant()
	return l.resume
}

func (l *Limiter) resume() {
	w := make(waiter)
	l.mu.Lock()
	l.resuming.PushBack(w)
	l.grant()
	l.mu.Unlock()
	<-w
}

// SuspendDuring calls [Suspend] while next sends a request. As the program's only transport,
// it covers each call to a provider.
func SuspendDuring(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	defer Suspend(r.Context())()
	return t.next.RoundTrip(r)
}
