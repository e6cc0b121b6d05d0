// Package limiter is the admission control of the API. It bounds the requests at work
// and lets a bounded backlog wait, in turn by account. It rejects the others before
// they have touched the database.
//
// A short backlog is cheaper than rejections, because rejected clients send again. In a
// long one, clients time out before they are served. A request that waits for the
// payment provider, or for another request, returns its permit, see [Transport] and
// [Await], and gets one again before all new requests.
package limiter
