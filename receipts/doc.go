// Package receipts sends one e-mail for each paid order.
//
// [StageTx] inserts a job into staged_jobs in the transaction that stores the 201, so
// every paid order has exactly one job (R15). A [Worker] leases each due job (R16) and
// sends the mail without a transaction or connection (R6). It deletes the job after the
// mail server accepted the mail. A receipt is therefore sent at least once. A second
// copy, after a crash before the DELETE, has the same Message-ID.
//
// A failed attempt is repeated with exponential backoff. A permanent rejection or too
// many attempts set failed_at. To send the receipt after the cause is fixed:
//
//	UPDATE staged_jobs SET failed_at = NULL, attempt = 0, run_at = now() WHERE account_id = … AND id = …
package receipts
