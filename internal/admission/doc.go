// Package admission is the admission control of the API: a bounded number of requests is at work, a
// bounded backlog waits for a limited time, and the others are rejected before they touch the
// database.
//
// It is not a semaphore, because that rejects at once. Clients that ignore Retry-After then send again
// at once, and goodput fell to a tenth, since the server was busy with rejections. Here a rejection
// takes a quarter of a second, so each such client sends at most four requests a second, and a request
// that can be served in time waits. Nor does a semaphore let a run go on: a run that called the provider
// has claimed its key and may have moved money, so it continues at once, beyond the permits if need be.
package admission
