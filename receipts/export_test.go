package receipts

import (
	"crypto/x509"
	"time"
)

// ParseMail exports parseMail.
var ParseMail = parseMail

// BatchSize exports batchSize.
const BatchSize = batchSize

// Statements maps each statement to the indexes that it must use.
var Statements = map[string][]string{
	nextDueSQL:       {"staged_jobs_pending_idx"},
	candidatesSQL:    {"staged_jobs_pending_idx"},
	claimSQL:         {"staged_jobs_pkey"},
	deleteSQL:        {"staged_jobs_pkey"},
	recordFailureSQL: {"staged_jobs_pkey"},
	statsSQL:         {"staged_jobs_pending_idx", "staged_jobs_failed_idx"},
}

// SetConcurrency sets the number of mails sent at once.
func (w *Worker) SetConcurrency(n int) { w.concurrency = n }

// SetSendTimeout sets the limit of an SMTP session.
func (w *Worker) SetSendTimeout(d time.Duration) { w.sendTimeout = d }

// SetMaxAttempts sets the number of attempts before a job fails.
func (w *Worker) SetMaxAttempts(n int) { w.maxAttempts = n }

// SetBackoff replaces Backoff.
func (w *Worker) SetBackoff(backoff func(attempt int) time.Duration) { w.backoff = backoff }

// Trust makes the client trust roots.
func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
