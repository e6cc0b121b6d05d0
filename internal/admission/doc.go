// Package admission is the admission control of the API. It bounds the requests at work and
// lets a bounded backlog wait, in turn by account. The others are rejected before they
// touch the database.
//
// It is not a semaphore, which rejects at once: clients that ignore Retry-After then send
// again at once, and goodput fell to a tenth. Here requests wait while they can be served in
// time, and a rejection takes a while, so 600 such clients leave nine tenths of the goodput
// (docs/overload.md).
package admission
