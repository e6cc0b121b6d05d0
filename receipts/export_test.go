package receipts

import (
	"crypto/x509"
	"time"
)

var ParseMail = parseMail

const BatchSize = batchSize

// Statements maps each statement to the indexes that it must use.
var Statements = map[string][]string{
	candidatesSQL:    {"staged_jobs_pending_idx"},
	claimSQL:         {"staged_jobs_pkey"},
	deleteSQL:        {"staged_jobs_pkey"},
	recordFailureSQL: {"staged_jobs_pkey"},
	statsSQL:         {"staged_jobs_pending_idx", "staged_jobs_failed_idx"},
}

func (w *Worker) SetConcurrency(n int) { w.concurrency = n }

func (w *Worker) SetSendTimeout(d time.Duration) { w.sendTimeout = d }

func (w *Worker) SetMaxAttempts(n int) { w.maxAttempts = n }

func (w *Worker) SetBackoff(backoff func(attempt int) time.Duration) { w.backoff = backoff }

func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
