// Package reconcile compares our orders and refunds with the provider's intents and refunds. It
// never charges or refunds. What it found stays open until it is gone, fixed or acknowledged.
// docs/runbook.md has the remedy for each [Kind].
package reconcile
