// Package load generates load and records the latency and status of each request.
//
// [Closed] is a closed loop: each client sends the next request after the last response.
// It measures throughput. It cannot overload a server, because its rate decreases with
// the latency.
//
// [Open] is an open loop: it sends at a constant rate, independent of the responses. The
// latency of a request counts from its due time. Otherwise a late generator would hide
// latency that clients see (coordinated omission).
package load
