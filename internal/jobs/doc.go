// Package jobs works off the rows of staged_jobs: work that must follow a transaction, which inserted
// the job (R15, staged receipt). No other package has statements on this table.
//
// A [Worker] leases each due job of its kind and deletes it once its function has succeeded. After a
// crash in between, the job is repeated. A permanent error or too many attempts set failed_at, and then
// the job waits for an operator (docs/runbook.md). A discrepancy waits from the start, see [Report].
package jobs
