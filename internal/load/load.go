package load

import (
	"context"
	"sync"
	"time"
)

// Send sends request number i, counted from 0, and returns the status of the
// answer, or an error when there was none. It is called from many goroutines.
type Send func(ctx context.Context, i int) (status int, err error)

// Closed lets a number of clients send one request behind the other for as long
// as duration or ctx lasts, and waits for those under way.
func Closed(ctx context.Context, clients int, duration time.Duration, send Send) Report {
	r := recorder{begun: time.Now(), send: send}
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(r.begun) < duration {
				r.one(ctx, r.next(), time.Now())
			}
		})
	}
	all.Wait()
	return r.report()
}

// Open sends rate requests a second, evenly spaced, for as long as duration or
// ctx lasts, and waits for those under way. One that is due while maxInFlight are
// under way is not sent and counts as [Report.Dropped]: a generator without a
// bound would measure its own exhaustion.
func Open(ctx context.Context, rate float64, duration time.Duration, maxInFlight int, send Send) Report {
	r := recorder{begun: time.Now(), send: send}
	places := make(chan struct{}, maxInFlight)
	var all sync.WaitGroup
	for n := range int(rate * duration.Seconds()) {
		due := r.begun.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		if !waitUntil(ctx, due) {
			break
		}
		select {
		case places <- struct{}{}:
		default:
			r.dropped++
			continue
		}
		i := r.next()
		all.Go(func() {
			defer func() { <-places }()
			r.one(ctx, i, due)
		})
	}
	all.Wait()
	return r.report()
}

// waitUntil says whether the moment came before the end of ctx.
func waitUntil(ctx context.Context, moment time.Time) bool {
	if early := time.Until(moment); early > 0 {
		timer := time.NewTimer(early)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// recorder collects what becomes of the requests.
type recorder struct {
	begun   time.Time
	send    Send
	dropped int // written by Open alone

	mu       sync.Mutex
	sent     int
	requests []Request
}

// next numbers a request.
func (r *recorder) next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	return r.sent - 1
}

// one sends the request that is due at that moment.
func (r *recorder) one(ctx context.Context, i int, due time.Time) {
	status, err := r.send(ctx, i)
	request := Request{At: due.Sub(r.begun), Took: time.Since(due), Status: status, Err: err}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

func (r *recorder) report() Report {
	return Report{Took: time.Since(r.begun), Dropped: r.dropped, Requests: r.requests}
}
