// Package limiter is the admission control of the API. It bounds the requests that
// are at work at once and lets a bounded backlog of new requests wait, in turn by
// account. A request beyond that is rejected before it has touched the database.
//
// A short backlog is better than a rejection, because a client that is rejected
// comes back and costs another request. An unbounded backlog is useless: by the time
// a request is served, its client has timed out. A request that waits for the payment
// provider is no load. It returns its permit meanwhile, see [Transport], and gets one
// again before all new requests.
package limiter
