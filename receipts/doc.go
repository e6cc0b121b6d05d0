// Package receipts sends one e-mail for each paid order.
//
// [StageTx] inserts a job in the transaction that stores the 201 (R15, staged receipt). The worker of [NewWorker]
// leases each due job and deletes it after the mail server accepted the mail. After a crash in
// between, it sends a second copy with the same Message-ID. A permanent rejection or too many
// attempts set failed_at; docs/runbook.md has the remedy.
package receipts
