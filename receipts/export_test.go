package receipts

import "crypto/x509"

// ParseMail is parseMail for the external tests.
var ParseMail = parseMail

// StatsSQL is the statement of ReadStats.
const StatsSQL = statsSQL

// BatchSize is the number of candidates in one read.
const BatchSize = batchSize

// Statements are the statements of a worker on staged_jobs, and the index of each.
var Statements = map[string]string{
	nextDueSQL:    "staged_jobs_pending_idx",
	candidatesSQL: "staged_jobs_pending_idx",
	claimSQL:      "staged_jobs_pkey",
	deleteSQL:     "staged_jobs_pkey",
	retryLaterSQL: "staged_jobs_pkey",
	markFailedSQL: "staged_jobs_pkey",
}

// Trust makes the client accept certificates signed by roots.
func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
