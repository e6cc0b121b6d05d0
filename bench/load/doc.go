// Package load generates load for a server, and records the latency and the status
// of each request.
//
// [Closed] is a closed-loop generator: each of its clients sends the next request
// after the response to the last one. It measures the throughput of a server. It
// cannot overload the server, because the rate decreases with the latency.
//
// [Open] is an open-loop generator: it sends at a constant rate, independent of the
// responses, like many independent clients. The latency of a request counts from the
// time at which it was due. Otherwise a generator that is late
// would hide latency that clients see (coordinated omission).
//
// Both call a [Send] and return a [Report] of every request. The package does not
// depend on HTTP or on orders.
package load
