// Package changes records what changes at the provider after a response: refunds that fail late or are
// made at its dashboard, and disputes (R27, the provider's events).
//
//	webhook ─┐             ┌▶ provider_events, each event once
//	         ├▶ one commit ┤
//	list  ───┘             └▶ a job per order ─▶ list its refunds and disputes ─▶ one commit
//	reconcile ────────────────┘
//
// An event only says which order to read. The lists decide, so an event that is lost, late, repeated or out
// of order changes nothing, and a job that fails is repeated until an operator sees it.
package changes
