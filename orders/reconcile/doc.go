// Package reconcile compares the orders and refunds in our database with the
// payment intents and refunds at the provider, and reports every discrepancy.
//
// It reads both sides. With Config.Fix it also cancels orphaned intents, applies
// the provider's refund status, and with Config.LostRows expires the key of a charge
// whose order is lost. It does nothing else: it never charges, refunds or resumes a
// key. docs/runbook.md has the remedy for each [Kind].
//
// The package knows what an order and a refund record, not how either is made.
package reconcile
