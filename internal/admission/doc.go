// Package admission is the admission control of the API. It bounds the requests at work
// and lets a bounded backlog wait, in turn by account. It rejects the others before
// they have touched the database.
//
// It is not a semaphore, which rejects at once: clients that ignore Retry-After then send
// again at once, and goodput fell to a tenth. Here requests wait for as long as they can
// still be served in time, and a rejection takes a while, so 600 such clients leave nine
// tenths of the goodput (docs/overload.md names the measurement).
//
// A request that only waits for the payment provider or for another request returns its
// permit, see [Suspend].
package admission
