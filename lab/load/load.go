package load

import (
	"context"
	"sync"
	"time"
)

// Send sends request number i, counted from 0. It returns an error if there is no
// response. It must be safe for concurrent use.
type Send func(ctx context.Context, i int) (status int, err error)

// Closed runs a number of clients until duration or ctx ends. It waits for the requests
// in flight.
func Closed(ctx context.Context, clients int, duration time.Duration, send Send) Report {
	r := recorder{start: time.Now(), send: send}
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(r.start) < duration {
				r.sendOne(ctx, r.next(), time.Now())
			}
		})
	}
	all.Wait()
	return r.report()
}

// tick groups the requests of [Open], because a timer for each of them took as much CPU time
// as the request. Latencies include the wait for the tick.
const tick = 5 * time.Millisecond

// Open sends rate requests per second until duration or ctx ends, and waits for the
// requests in flight. It sends those that are due together, every 5 ms. A request that is due while maxInFlight are in flight is dropped.
// Without this limit, the generator would measure its own exhaustion.
func Open(ctx context.Context, rate float64, duration time.Duration, maxInFlight int, send Send) Report {
	r := recorder{start: time.Now(), send: send}
	slots := make(chan struct{}, maxInFlight)
	var all sync.WaitGroup
	for n := range int(rate * duration.Seconds()) {
		at := time.Duration(float64(n) / rate * float64(time.Second))
		if !waitUntil(ctx, r.start.Add((at + tick - 1).Truncate(tick))) {
			break
		}
		select {
		case slots <- struct{}{}:
		default:
			r.dropped++
			continue
		}
		i := r.next()
		all.Go(func() {
			defer func() { <-slots }()
			r.sendOne(ctx, i, r.start.Add(at))
		})
	}
	all.Wait()
	return r.report()
}

// waitUntil returns false if ctx ended first.
func waitUntil(ctx context.Context, t time.Time) bool {
	if d := time.Until(t); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

type recorder struct {
	start   time.Time
	send    Send
	dropped int // only written by Open

	mu       sync.Mutex
	sent     int
	requests []Request
}

func (r *recorder) next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	return r.sent - 1
}

func (r *recorder) sendOne(ctx context.Context, i int, due time.Time) {
	status, err := r.send(ctx, i)
	request := Request{At: due.Sub(r.start), Latency: time.Since(due), Status: status, Err: err}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

func (r *recorder) report() Report {
	return Report{Duration: time.Since(r.start), Dropped: r.dropped, Requests: r.requests}
}
