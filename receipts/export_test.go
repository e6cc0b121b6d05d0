package receipts

import "crypto/x509"

// ParseMail is parseMail.
var ParseMail = parseMail

// BatchSize is the number of candidates in one read.
const BatchSize = batchSize

// Statements are the statements on staged_jobs, and the indexes of each.
var Statements = map[string][]string{
	nextDueSQL:    {"staged_jobs_pending_idx"},
	candidatesSQL: {"staged_jobs_pending_idx"},
	claimSQL:      {"staged_jobs_pkey"},
	deleteSQL:     {"staged_jobs_pkey"},
	retryLaterSQL: {"staged_jobs_pkey"},
	markFailedSQL: {"staged_jobs_pkey"},
	statsSQL:      {"staged_jobs_pending_idx", "staged_jobs_failed_idx"},
}

// Trust makes the client trust roots.
func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
