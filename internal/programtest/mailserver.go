package programtest

import (
	"testing"

	"example.com/orders-api/internal/mailtest"
)

// MailServer collects mails.
type MailServer = mailtest.Server

// NewMailServer starts a server until the end of the test. With a password, it requires a login.
func NewMailServer(t *testing.T, password string) *MailServer {
	t.Helper()
	return mailtest.New(t, mailtest.Script{Password: password})
}
