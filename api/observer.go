package api

import (
	"net/http"
	"time"
)

// Observer has optional callbacks for metrics. They are called synchronously.
type Observer struct {
	// OnRequest is called after each request.
	OnRequest func(RequestEvent)

	// OnBackgroundRun is called with the outcome of each background run. The outcome of
	// its request was "accepted", unless the client waited for the result.
	OnBackgroundRun func(outcome string)
}

// RequestEvent describes a request and its response.
type RequestEvent struct {
	Method   string // GET, HEAD, POST or "other"
	Route    string // the pattern, "" if no route matched
	Status   int
	Duration time.Duration

	// Outcome is one of [Outcomes], or "" for a request without an idempotency key or
	// event.
	Outcome string
}

// Outcomes are the outcomes of a request with an idempotency key, or of an event.
func Outcomes() []string {
	return []string{
		"created",       // the first run stored a response, which may be a decline
		"replayed",      // the response was stored before
		"recovered",     // a later run stored a response
		"accepted",      // 202, the run continues
		"in_progress",   // another run holds the key
		"reused",        // the key was used for another request
		"lease_lost",    // another run took the key over
		"refused",       // the request is not valid, or was rejected because of overload
		"retryable",     // the run stored no response
		"refund_synced", // an event changed the status of a refund
		"ignored",       // an event was not about an object of ours
	}
}

func (o Observer) request(method, route string, status int, duration time.Duration, outcome string) {
	if o.OnRequest == nil {
		return
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		method = "other"
	}
	o.OnRequest(RequestEvent{Method: method, Route: route, Status: status, Duration: duration, Outcome: outcome})
}

func (o Observer) backgroundRun(outcome string) {
	if o.OnBackgroundRun != nil {
		o.OnBackgroundRun(outcome)
	}
}
