package stripetest

import (
	"slices"
	"time"
)

// A Request is the record of a request, without its credentials.
type Request struct {
	ID       string // the Request-Id
	Time     time.Time
	Method   string
	Path     string
	Endpoint string // as in Rule; empty for an unrecognized URL
	Key      string // the Idempotency-Key of a POST, as sent
	OrderID  string // metadata[order_id] of the request, or of the intent it names
	Body     []byte // must not be changed
	Status   int    // sent to the client; 0 while in flight and without a response
	Executed bool   // the endpoint was executed, with its effect or an error
	Replayed bool   // the response was a stored one
	Faults   []Fault
}

func (r *Request) copy() Request {
	c := *r
	c.Faults = slices.Clone(r.Faults)
	return c
}

const maxRequests = 10_000

type requestLog struct {
	all []*Request // up to twice maxRequests, so that deleting is cheap
}

func (l *requestLog) add(r *Request) {
	if len(l.all) >= 2*maxRequests {
		l.all = slices.Clone(l.latest())
	}
	l.all = append(l.all, r)
}

func (l *requestLog) latest() []*Request {
	return l.all[max(0, len(l.all)-maxRequests):]
}

// Requests returns the latest requests, oldest first, including those in flight.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var requests []Request
	for _, r := range s.requests.latest() {
		requests = append(requests, r.copy())
	}
	return requests
}

// Executions returns how many of the latest requests with a key were executed. Replays
// and invalid requests do not count.
func (s *Server) Executions(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests.latest() {
		if r.Key == key && r.Executed {
			n++
		}
	}
	return n
}
