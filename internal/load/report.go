package load

import (
	"math"
	"slices"
	"time"
)

// Request is what became of a request.
type Request struct {
	At     time.Duration // when it was due, from the beginning
	Took   time.Duration // from then to the end of the answer
	Status int           // 0 without an answer
	Err    error         // why there was none
}

// Report is what became of all of them.
type Report struct {
	Took     time.Duration // from the beginning to the last answer
	Dropped  int           // due, and not sent: see [Open]
	Requests []Request     // in the order of their ends
}

// Only returns the report of those requests that keep wants, for instance those
// that were answered 201, or those of the last ten seconds.
func (r Report) Only(keep func(Request) bool) Report {
	var kept []Request
	for _, request := range r.Requests {
		if keep(request) {
			kept = append(kept, request)
		}
	}
	return Report{Took: r.Took, Requests: kept}
}

// Answered returns the report of the requests that got this status.
func (r Report) Answered(status int) Report {
	return r.Only(func(request Request) bool { return request.Err == nil && request.Status == status })
}

// Statuses counts the requests by status, those without an answer under 0.
func (r Report) Statuses() map[int]int {
	counts := map[int]int{}
	for _, request := range r.Requests {
		if request.Err != nil {
			request.Status = 0
		}
		counts[request.Status]++
	}
	return counts
}

// Rate is the number of requests per second.
func (r Report) Rate() float64 { return float64(len(r.Requests)) / r.Took.Seconds() }

// Percentiles returns for each p, from 0 to 1, the shortest latency that as large
// a part of the requests did not exceed; 0 when there are none.
func (r Report) Percentiles(p ...float64) []time.Duration {
	latencies := make([]time.Duration, len(r.Requests))
	for i, request := range r.Requests {
		latencies[i] = request.Took
	}
	slices.Sort(latencies)
	found := make([]time.Duration, len(p))
	for i, part := range p {
		if n := len(latencies); n > 0 {
			found[i] = latencies[min(max(int(math.Ceil(part*float64(n))), 1), n)-1]
		}
	}
	return found
}
