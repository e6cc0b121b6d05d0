package receipts

import (
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wneessen/go-mail"
)

// NewTestMessage returns a receipt with this description of its first item.
func NewTestMessage(t testing.TB, description string) *mail.Msg {
	t.Helper()
	o := testOrder()
	o.Items[0].Description = description
	message, err := newMessage(testSender, o)
	require.NoError(t, err)
	return message
}

var ParseMail = parseMail

func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
