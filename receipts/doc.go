// Package receipts sends one e-mail for each paid order.
//
// The receipt is a row in staged_jobs, written by [StageTx] in the transaction
// that stores the 201: there is never a paid order without its job, nor a job
// for an order that was rolled back (R15). A [Worker] drains the jobs. It takes
// one by moving its run_at ahead, which is its lease, renders and sends with no
// transaction and no connection held (R6), and deletes the row only after the
// mail server accepted the mail. So a receipt is sent at least once; a second
// copy, after a crash in between, carries the same Message-ID.
//
// A failed job comes back with growing backoff. One that the server refuses for
// good, or that failed too often, gets failed_at: it stays for a person to see.
// To send it after all, once the cause is gone:
//
//	UPDATE staged_jobs SET failed_at = NULL, attempt = 0, run_at = now() WHERE account_id = … AND id = …
//
// The package reads the orders table with its own SQL. It knows nothing of
// requests, keys, payments or HTTP, and never writes to an order.
package receipts
