// Package reconcile compares our orders and refunds with the payment intents and refunds at
// the provider, and reports each discrepancy. It never charges, refunds or resumes a key.
// docs/runbook.md has the remedy for each [Kind].
package reconcile
