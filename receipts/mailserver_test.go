package receipts_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"
)

type script struct {
	onMail   func() error                         // reply to MAIL FROM
	onRcpt   func(conn net.Conn, to string) error // reply to RCPT TO
	onData   func(conn net.Conn) error            // reply after the content
	certs    []tls.Certificate                    // offer STARTTLS
	smtps    bool                                 // or start with TLS
	password string                               // offer AUTH for the user "shop"
	smtpUTF8 bool

	authFailure error // by default 535
}

type delivery struct {
	hello string
	from  string
	to    []string
	utf8  bool // declared with SMTPUTF8
	tls   bool
	login string
	raw   []byte
}

type mailServer struct {
	port   string
	script script

	mu        sync.Mutex
	delivered []delivery
}

func newMailServer(t *testing.T, s script) *mailServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	m := &mailServer{port: port, script: s}
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		session := &session{server: m, conn: c}
		if s.password == "" {
			return session, nil
		}
		return authSession{session}, nil
	}))
	server.Domain = "mail.example.com"
	server.MaxLineLength = 1000 // RFC 5321, 4.5.3.1.6, not the doubled default
	server.MaxRecipients = 1
	server.AllowInsecureAuth = true
	server.EnableSMTPUTF8 = s.smtpUTF8
	server.ErrorLog = log.New(io.Discard, "", 0)
	if s.certs != nil {
		server.TLSConfig = &tls.Config{Certificates: s.certs, MinVersion: tls.VersionTLS12}
	}
	if s.smtps {
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

func (m *mailServer) url() string { return "smtp://127.0.0.1:" + m.port }

func (m *mailServer) mails() []delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.delivered)
}

type session struct {
	server *mailServer
	conn   *smtp.Conn
	login  string
	next   delivery
}

func (s *session) Mail(from string, options *smtp.MailOptions) error {
	_, encrypted := s.conn.TLSConnectionState()
	s.next = delivery{hello: s.conn.Hostname(), from: from, utf8: options.UTF8, tls: encrypted, login: s.login}
	if s.server.script.onMail != nil {
		return s.server.script.onMail()
	}
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.next.to = append(s.next.to, to)
	if s.server.script.onRcpt != nil {
		return s.server.script.onRcpt(s.conn.Conn(), to)
	}
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.next.raw = raw
	if s.server.script.onData != nil {
		if err := s.server.script.onData(s.conn.Conn()); err != nil {
			return err
		}
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.delivered = append(s.server.delivered, s.next)
	return nil
}

func (s *session) Reset() {}

func (s *session) Logout() error { return nil }

type authSession struct{ *session }

func (authSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s authSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, password string) error {
		if s.server.script.authFailure != nil {
			return s.server.script.authFailure
		}
		if username != "shop" || password != s.server.script.password {
			return smtp.ErrAuthFailed
		}
		s.login = username
		return nil
	}), nil
}

func rejection(code int, status smtp.EnhancedCode, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: status, Message: text}
}

// newCertificate is self-signed and valid for 127.0.0.1 and 0.0.0.0. The client treats
// 0.0.0.0 as another machine.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
