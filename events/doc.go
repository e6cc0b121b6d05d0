// Package events tells the shop what has changed, by requests to its endpoint (R28, events to the shop).
//
// [Stager.StageTx] inserts a job in the transaction that records the change. A worker delivers it at least
// once, unordered, with a signature of Standard Webhooks. The event only names its objects, which the shop
// then reads, so it needs no order among the events, and it holds no personal data. docs/events.md has the
// shop's part.
package events
