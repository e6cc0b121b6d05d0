// Package limiter is the admission control of the API. It bounds the requests that
// are at work at once, shares the permits fairly between accounts, and rejects a
// request that does not get a permit in time before it has touched the database.
//
// A short queue is better than a rejection: a client that is rejected comes back
// and costs another request. An unbounded queue is useless: by the time a request is
// served, its client has timed out. So a new request waits a short time for its
// permit. A request that waits for the payment provider is no load. It returns its
// permit meanwhile (see [Transport]) and gets one before all new requests.
package limiter
