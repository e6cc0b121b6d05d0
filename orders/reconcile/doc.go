// Package reconcile compares our orders with the provider's intents. It never charges or refunds. It only lists
// refunds and disputes: an order that differs gets a job, which reads and records them (package changes). What it
// found stays open until it is gone, fixed or acknowledged. docs/runbook.md has the remedy for each [Kind].
package reconcile
