package receipts

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// stepTimeout bounds connecting with login, and then sending. The context bounds both.
const stepTimeout = 30 * time.Second

// SMTP is a [Mailer] that sends each receipt on a new connection, which is never stale.
type SMTP struct {
	url     string // without credentials
	host    string
	tls     *tls.Config
	dial    mail.DialContextFunc
	options []mail.Option
}

// NewSMTP returns an SMTP for a URL such as smtp://user:password@host:587. The default
// port is 587, and 465 for smtps:// (implicit TLS). No error contains the password.
//
// With smtp:// the connection uses STARTTLS if the server offers it. Credentials
// require encryption with a valid certificate, except on loopback.
func NewSMTP(rawURL string) (*SMTP, error) {
	errForm := errors.New("receipts: SMTP URL: want smtp://host:port or smtp://user:password@host:port, or smtps://, " +
		"with special characters percent-encoded and nothing after the port")
	server, err := url.Parse(rawURL)
	if err != nil {
		return nil, errForm // the error of url.Parse quotes the whole URL
	}
	host, user := server.Hostname(), server.User.Username()
	password, _ := server.User.Password()
	port, err := strconv.Atoi(cmp.Or(server.Port(), map[string]string{"smtp": "587", "smtps": "465"}[server.Scheme]))
	switch {
	case server.Scheme != "smtp" && server.Scheme != "smtps",
		host == "",
		err != nil || port < 1 || port > 65535,
		strings.Trim(server.Path, "/") != "" || server.RawQuery != "" || server.Fragment != "",
		(user == "") != (password == ""):
		return nil, errForm
	}
	s := &SMTP{
		url:  server.Scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)),
		host: host,
		tls:  &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12},
		dial: (&net.Dialer{}).DialContext,
	}
	s.options = []mail.Option{
		mail.WithPort(port),
		mail.WithTLSConfig(s.tls),
		mail.WithTimeout(stepTimeout),
		mail.WithoutNoop(),     // the connection is new
		mail.WithoutRset(),     // and carries one mail
		mail.WithoutSMTPUTF8(), // all addresses are ASCII, and older servers reject a mail that requests it
	}
	switch {
	case server.Scheme == "smtps":
		s.dial = (&tls.Dialer{Config: s.tls}).DialContext
		s.options = append(s.options, mail.WithSSL())
	case user != "" && host != "localhost" && !net.ParseIP(host).IsLoopback():
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSMandatory))
	default:
		// An attacker who can forge a certificate can also hide the STARTTLS offer, so
		// a valid certificate would add no security.
		s.tls.InsecureSkipVerify = true // opportunistic (RFC 7435): no password leaves this machine
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if user != "" {
		// PLAIN and LOGIN send the password itself, but only with TLS or on loopback.
		s.options = append(s.options, mail.WithUsername(user), mail.WithPassword(password),
			mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlain, mail.SMTPAuthLogin))
	}
	return s, nil
}

// String returns the server's URL without credentials.
func (s *SMTP) String() string { return s.url }

// Send sends one receipt. Only a 5xx to the recipient or the content is [ErrPermanent].
// Rejected credentials or a rejected sender are configuration errors, which are
// retried.
func (s *SMTP) Send(ctx context.Context, message Message) error {
	return s.withSession(ctx, func(client *mail.Client, session *smtp.Client) error {
		err := client.SendWithSMTPClient(session, message.mime())
		if failed, ok := errors.AsType[*mail.SendError](err); ok {
			err = &SendError{failed}
		}
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return err
	})
}

// Check connects and logs in, but sends no mail.
func (s *SMTP) Check(ctx context.Context) error {
	return s.withSession(ctx, func(*mail.Client, *smtp.Client) error { return nil })
}

// withSession connects, logs in and calls do. ctx bounds the connection's life.
func (s *SMTP) withSession(ctx context.Context, do func(*mail.Client, *smtp.Client) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dial := func(dialCtx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.dial(dialCtx, network, address)
		if err == nil {
			// The client ignores the context once it is connected, and leaks the
			// connection if the login fails.
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
	client, err := mail.NewClient(s.host, append(slices.Clone(s.options), mail.WithDialContextFunc(dial))...)
	if err != nil {
		return fmt.Errorf("receipts: mail client: %w", err)
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return fmt.Errorf("receipts: connect to %s: %w", s, err)
	}
	if err := do(client, session); err != nil {
		return err
	}
	_ = client.CloseWithSMTPClient(session) // the mail is accepted even if QUIT fails
	return nil
}

// SendError means that the mail server did not accept the mail.
type SendError struct{ cause *mail.SendError }

// Error omits the server's text, which may quote the recipient: errors are logged.
func (e *SendError) Error() string {
	if e.cause.ErrorCode() == 0 {
		return fmt.Sprintf("receipts: %s: no response", e.cause.Reason)
	}
	return strings.TrimSpace(fmt.Sprintf("receipts: %s: reply %d %s", e.cause.Reason, e.cause.ErrorCode(), e.cause.EnhancedStatusCode()))
}

// Detail returns the server's text.
func (e *SendError) Detail() string { return e.cause.Error() }

// Is reports whether the error is [ErrPermanent].
func (e *SendError) Is(target error) bool {
	aboutMail := slices.Contains([]mail.SendErrReason{mail.ErrSMTPRcptTo, mail.ErrSMTPData, mail.ErrSMTPDataClose}, e.cause.Reason)
	return target == ErrPermanent && aboutMail && e.cause.ErrorCode() >= 500
}
