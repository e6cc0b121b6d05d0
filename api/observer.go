package api

import (
	"net/http"
	"time"
)

// Observer hears of requests, for metrics. Requests wait for its functions, and
// nil ones hear nothing.
type Observer struct {
	// Answered hears of each request that was answered.
	Answered func(Answered)

	// Finished hears the outcome of each run in the background. Its request was
	// answered before with the outcome accepted, unless its client waited for it.
	Finished func(outcome string)
}

// Answered is a request as it was answered.
type Answered struct {
	Method string // GET, HEAD, POST or, whatever else there is, other
	Route  string // its pattern, "" when there is none for it
	Status int
	Took   time.Duration

	// Outcome is what became of an idempotency key, one of [Outcomes], and "" for
	// a request that got to none.
	Outcome string
}

// Outcomes are all that a request under a key, or an event of the provider, can
// come to.
func Outcomes() []string {
	return []string{
		"created",       // ran for the first time, and has its final answer, a decline included
		"replayed",      // got the stored answer
		"recovered",     // went on with what an earlier run had left, and has its final answer
		"accepted",      // 202, the run goes on
		"in_progress",   // another run holds the key
		"reused",        // the key belongs to another request
		"lease_lost",    // another run took the key over
		"refused",       // for what is wrong with it, or because there is too much to do
		"retryable",     // no final response, and nothing stored
		"refund_synced", // an event changed the status of a refund
		"ignored",       // an event was about nothing of ours
	}
}

func (o Observer) answered(method, route string, status int, took time.Duration, outcome string) {
	if o.Answered == nil {
		return
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		method = "other"
	}
	o.Answered(Answered{Method: method, Route: route, Status: status, Took: took, Outcome: outcome})
}

func (o Observer) finished(outcome string) {
	if o.Finished != nil {
		o.Finished(outcome)
	}
}
