package receipts

import (
	"crypto/x509"
	"time"
)

// ParseMail is parseMail.
var ParseMail = parseMail

// BatchSize is the number of candidates in one read.
const BatchSize = batchSize

// Statements are the statements on staged_jobs, and the indexes of each.
var Statements = map[string][]string{
	nextDueSQL:       {"staged_jobs_pending_idx"},
	candidatesSQL:    {"staged_jobs_pending_idx"},
	claimSQL:         {"staged_jobs_pkey"},
	deleteSQL:        {"staged_jobs_pkey"},
	recordFailureSQL: {"staged_jobs_pkey"},
	statsSQL:         {"staged_jobs_pending_idx", "staged_jobs_failed_idx"},
}

// The setters replace a constant before the worker's first pass.

// SetConcurrency sets the number of mails sent at once.
func (w *Worker) SetConcurrency(n int) { w.concurrency = n }

// SetSendTimeout sets the limit of a session with the mail server.
func (w *Worker) SetSendTimeout(d time.Duration) { w.sendTimeout = d }

// SetMaxAttempts sets the number of attempts after which a job is marked as failed.
func (w *Worker) SetMaxAttempts(n int) { w.maxAttempts = n }

// SetBackoff replaces Backoff.
func (w *Worker) SetBackoff(backoff func(attempt int) time.Duration) { w.backoff = backoff }

// Trust makes the client trust roots.
func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
