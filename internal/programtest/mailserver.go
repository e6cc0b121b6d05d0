package programtest

import (
	"io"
	"log"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"
)

// MailServer collects mails. With a password, it requires a login of "tester".
type MailServer struct {
	Address  string
	password string

	mu    sync.Mutex
	mails []string
	busy  int
}

// NewMailServer starts a server until the end of the test.
func NewMailServer(t *testing.T, password string) *MailServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &MailServer{Address: listener.Addr().String(), password: password}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		if password == "" {
			return mailSession{m}, nil
		}
		return loginSession{mailSession{m}}, nil
	}))
	server.Domain = "mail.example.com"
	server.AllowInsecureAuth = true // loopback
	server.ErrorLog = log.New(io.Discard, "", 0)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.NoError(t, <-done)
	})
	return m
}

// Received returns the accepted mails.
func (m *MailServer) Received() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mails)
}

// RejectNext rejects the next n mails for now.
func (m *MailServer) RejectNext(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy = n
}

type mailSession struct{ server *MailServer }

func (mailSession) Reset()                               {}
func (mailSession) Logout() error                        { return nil }
func (mailSession) Mail(string, *smtp.MailOptions) error { return nil }
func (mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }

func (s mailSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.server.busy > 0 {
		s.server.busy--
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try again later"}
	}
	s.server.mails = append(s.server.mails, string(raw))
	return nil
}

type loginSession struct{ mailSession }

func (loginSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s loginSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "tester" || password != s.server.password {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}
