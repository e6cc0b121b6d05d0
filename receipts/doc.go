// Package receipts sends one e-mail for each paid order.
//
// The receipt is a row in staged_jobs, inserted by [StageTx] in the transaction
// that stores the 201. So every paid order has its job, and an order that was rolled
// back has none (R15). A [Worker] finds the jobs that are due with one indexed read.
// It claims each with a conditional UPDATE of that row, which moves run_at ahead as
// a lease (R16), renders and sends the mail without a transaction or connection
// (R6), and deletes the row only after the mail server accepted the mail. So a
// receipt is sent at least once. A second copy, after a crash before the DELETE,
// has the same Message-ID.
//
// A job whose attempt failed is tried again with growing backoff. A job that the
// mail server rejects permanently, or that failed too often, gets failed_at and
// stays for an operator. To send it after the cause is fixed:
//
//	UPDATE staged_jobs SET failed_at = NULL, attempt = 0, run_at = now() WHERE account_id = … AND id = …
//
// The package reads the orders table with its own SQL and never writes to it. It
// does not know idempotency keys, payments or HTTP.
package receipts
