// Package load offers requests to a server and measures what becomes of them.
//
// [Closed] is a number of clients, each of which sends its next request when it
// has the answer to the last one: that finds out what a server can do. It cannot
// overload it, because a slow server is asked less.
//
// [Open] sends at a constant rate, whatever the answers, as many independent
// clients do. A request's latency counts from the moment at which it should have
// been sent. Otherwise a generator that falls behind would hide the wait that its
// clients see (coordinated omission).
//
// Either calls a [Send] and returns a [Report]: every request, to be counted and
// sorted by its owner. The package knows nothing of HTTP or of orders.
package load
