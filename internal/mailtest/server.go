// Package mailtest is a mail server for tests.
package mailtest

import (
	"crypto/tls"
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

// Script is what a server offers and rejects. The zero value accepts each mail without a login.
type Script struct {
	OnMail   func() error                         // reply to MAIL FROM
	OnRcpt   func(conn net.Conn, to string) error // reply to RCPT TO
	OnData   func(conn net.Conn) error            // reply after the content
	Certs    []tls.Certificate                    // offer STARTTLS
	SMTPS    bool                                 // or start with TLS
	Password string                               // offer AUTH for any user
	SMTPUTF8 bool

	AuthFailure error // by default 535
}

// Mail is an accepted mail.
type Mail struct {
	Hello string
	From  string
	To    []string
	UTF8  bool // declared with SMTPUTF8
	TLS   bool
	Login string
	Raw   string
}

// Server collects mails.
type Server struct {
	Address string
	script  Script

	mu    sync.Mutex
	mails []Mail
	busy  int
}

// New starts a server until the end of the test.
func New(t testing.TB, s Script) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &Server{Address: listener.Addr().String(), script: s}
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		session := &session{server: m, conn: c}
		if s.Password == "" {
			return session, nil
		}
		return authSession{session}, nil
	}))
	server.Domain = "mail.example.com"
	server.MaxLineLength = 1000 // RFC 5321, 4.5.3.1.6, not the doubled default
	server.MaxRecipients = 1
	server.AllowInsecureAuth = true // loopback
	server.EnableSMTPUTF8 = s.SMTPUTF8
	server.ErrorLog = log.New(io.Discard, "", 0)
	if s.Certs != nil {
		server.TLSConfig = &tls.Config{Certificates: s.Certs, MinVersion: tls.VersionTLS12}
	}
	if s.SMTPS {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.NoError(t, <-done)
	})
	return m
}

// Mails returns the accepted mails.
func (m *Server) Mails() []Mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mails)
}

// Received returns the contents of the accepted mails.
func (m *Server) Received() (contents []string) {
	for _, mail := range m.Mails() {
		contents = append(contents, mail.Raw)
	}
	return contents
}

// RejectNext rejects the next n mails for now.
func (m *Server) RejectNext(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy = n
}

type session struct {
	server *Server
	conn   *smtp.Conn
	login  string
	next   Mail
}

func (s *session) Mail(from string, options *smtp.MailOptions) error {
	_, encrypted := s.conn.TLSConnectionState()
	s.next = Mail{Hello: s.conn.Hostname(), From: from, UTF8: options.UTF8, TLS: encrypted, Login: s.login}
	if s.server.script.OnMail != nil {
		return s.server.script.OnMail()
	}
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.next.To = append(s.next.To, to)
	if s.server.script.OnRcpt != nil {
		return s.server.script.OnRcpt(s.conn.Conn(), to)
	}
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.next.Raw = string(raw)
	if s.server.script.OnData != nil {
		if err := s.server.script.OnData(s.conn.Conn()); err != nil {
			return err
		}
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.server.busy > 0 {
		s.server.busy--
		return Rejection(451, smtp.EnhancedCode{4, 3, 0}, "try again later")
	}
	s.server.mails = append(s.server.mails, s.next)
	return nil
}

func (s *session) Reset() {}

func (s *session) Logout() error { return nil }

type authSession struct{ *session }

func (authSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s authSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, password string) error {
		if s.server.script.AuthFailure != nil {
			return s.server.script.AuthFailure
		}
		if password != s.server.script.Password {
			return smtp.ErrAuthFailed
		}
		s.login = username
		return nil
	}), nil
}

// Rejection is a reply of the server.
func Rejection(code int, status smtp.EnhancedCode, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: status, Message: text}
}
