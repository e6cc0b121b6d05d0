// Package reconcile keeps our records of orders, refunds and disputes equal to the provider's. It moves no money by
// itself, but it continues the runs of orders and refunds that are in progress, as the completer does.
//
// What changes after a response, such as a refund at the dashboard or a dispute, is learnt from the provider's events
// (R27, the provider's events):
//
//	webhook ──┐             ┌▶ provider_events, each event once
//	list ─────┼▶ one commit ┤
//	Compare ──┘             └▶ a job per order ─▶ list its refunds and disputes ─▶ one commit
//
// An event only says which order to read. The lists decide, so an event that is lost, late, repeated or out
// of order changes nothing, and a job that fails is repeated until an operator sees it.
//
// Compare, the nightly job, compares our orders with the provider's intents, and queues and works off the job of each
// order whose refunds or disputes differ. A discrepancy stays open until it is gone, fixed or acknowledged.
// docs/runbook.md has the remedy for each [Kind].
package reconcile
