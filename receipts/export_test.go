package receipts

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// NewTestMessage returns a receipt with this description of its first item.
func NewTestMessage(t testing.TB, description string) Message {
	t.Helper()
	o := testOrder()
	o.Items[0].Description = description
	message, err := newMessage(testSender, o)
	require.NoError(t, err)
	return message
}

var ParseMail = parseMail

const BatchSize, MaxAttempts = batchSize, maxMailAttempts

var Backoff = backoff

func (w *Worker) SetConcurrency(n int) { w.concurrency = n }

func (w *Worker) SetSendTimeout(d time.Duration) { w.sendTimeout = d }

func (w *Worker) SetBackoff(backoff func(attempt int) time.Duration) { w.backoff = backoff }

func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }

func (w *Worker) SetObserve(observe func(string, time.Duration)) { w.observe = observe }
