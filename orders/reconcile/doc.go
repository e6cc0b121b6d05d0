// Package reconcile compares our orders and refunds with the provider's intents and refunds. It
// never charges, refunds or resumes a key. docs/runbook.md has the remedy for each [Kind].
package reconcile
