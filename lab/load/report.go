package load

import (
	"math"
	"slices"
	"time"
)

// Request is the result of one request.
type Request struct {
	At      time.Duration // due time, since the start
	Latency time.Duration // from At to the end of the response
	Status  int           // 0 without a response
	Err     error
}

// Report is the result of all requests.
type Report struct {
	Duration time.Duration // until the last response
	Dropped  int           // see [Open]
	Requests []Request     // in the order of completion
}

// Filter returns a report with the requests for which keep returns true.
func (r Report) Filter(keep func(Request) bool) Report {
	var kept []Request
	for _, request := range r.Requests {
		if keep(request) {
			kept = append(kept, request)
		}
	}
	return Report{Duration: r.Duration, Requests: kept}
}

// EndedWithin returns a report of the requests that ended within duration after start. It
// excludes the partial rates at both ends.
func (r Report) EndedWithin(start, duration time.Duration) Report {
	within := r.Filter(func(request Request) bool {
		end := request.At + request.Latency
		return end >= start && end < start+duration
	})
	within.Duration = duration
	return within
}

// WithStatus returns a report of the responses with this status.
func (r Report) WithStatus(status int) Report {
	return r.Filter(func(request Request) bool { return request.Err == nil && request.Status == status })
}

// Statuses counts the requests by status. 0 is no response.
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

// Rate returns the requests per second.
func (r Report) Rate() float64 { return float64(len(r.Requests)) / r.Duration.Seconds() }

// Percentiles returns the latency at each percentile p, from 0 to 1, by the nearest-rank
// method. Without requests it is 0.
func (r Report) Percentiles(p ...float64) []time.Duration {
	latencies := make([]time.Duration, len(r.Requests))
	for i, request := range r.Requests {
		latencies[i] = request.Latency
	}
	slices.Sort(latencies)
	percentiles := make([]time.Duration, len(p))
	for i, fraction := range p {
		if n := len(latencies); n > 0 {
			percentiles[i] = latencies[min(max(int(math.Ceil(fraction*float64(n))), 1), n)-1]
		}
	}
	return percentiles
}
