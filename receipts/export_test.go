package receipts

import "crypto/x509"

// ParseMail is parseMail for the external tests.
var ParseMail = parseMail

// StatsSQL is what ReadStats asks, for its plan.
const StatsSQL = statsSQL

// Trust makes the client accept certificates signed by roots.
func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
