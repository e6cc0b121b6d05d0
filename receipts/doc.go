// Package receipts sends one e-mail for each paid order.
//
// [StageTx] inserts a job in the transaction that stores the 201 (R15). A [Worker] leases each
// due job (R16) and deletes it after the mail server accepted the mail. After a crash in
// between, it sends a second copy with the same Message-ID.
//
// A permanent rejection or too many attempts set failed_at. To send the receipt after the
// cause is fixed:
//
//	UPDATE staged_jobs SET failed_at = NULL, attempt = 0, run_at = now() WHERE account_id = … AND id = …
package receipts
