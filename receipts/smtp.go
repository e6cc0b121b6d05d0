package receipts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// stepTimeout bounds connecting with login, and then sending the mail. The caller's
// context bounds both together.
const stepTimeout = 30 * time.Second

// SMTP is a [Mailer] that sends each receipt to a mail server on a new connection.
// Receipts are few compared with what a mail server can take, and a new connection
// is never stale.
type SMTP struct {
	address  string // host and port
	host     string
	tls      *tls.Config
	implicit bool // the connection starts with TLS (smtps)
	options  []mail.Option
}

// NewSMTP returns an SMTP for a URL such as smtp://user:password@host:587. The
// default port is 587, and 465 for smtps:// (TLS from the first byte). Special
// characters in the password are percent-encoded. No error contains the password.
//
// With smtp:// the connection is encrypted if the server offers STARTTLS. If the URL
// has credentials, encryption and a valid certificate are required, except on this
// machine.
func NewSMTP(rawURL string) (*SMTP, error) {
	server, err := parseSMTPURL(rawURL)
	if err != nil {
		return nil, err
	}
	s := &SMTP{
		address:  net.JoinHostPort(server.host, strconv.Itoa(server.port)),
		host:     server.host,
		tls:      &tls.Config{ServerName: server.host, MinVersion: tls.VersionTLS12},
		implicit: server.scheme == "smtps",
	}
	switch {
	case s.implicit:
		s.options = append(s.options, mail.WithSSL())
	case server.user != "" && !isLoopback(server.host):
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSMandatory))
	default:
		// An attacker who can forge a certificate can also hide the STARTTLS offer,
		// so requiring a valid certificate would not add security.
		s.tls.InsecureSkipVerify = true // opportunistic (RFC 7435): no password leaves this machine
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if server.user != "" {
		s.options = append(s.options, mail.WithUsername(server.user), mail.WithPassword(server.password), loginOption())
	}
	s.options = append(s.options,
		mail.WithPort(server.port),
		mail.WithTLSConfig(s.tls),
		mail.WithTimeout(stepTimeout),
		mail.WithoutNoop(), // the connection is new
		mail.WithoutRset(), // and carries one mail
	)
	if _, err := mail.NewClient(s.host, s.options...); err != nil {
		return nil, fmt.Errorf("receipts: mail client: %w", err)
	}
	return s, nil
}

// loginOption names the mechanisms, so that the client does not look for one itself:
// it ignores that a connection of ours began with TLS, and then refuses PLAIN and
// LOGIN. Both require TLS or a server on this machine.
func loginOption() mail.Option {
	return mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlain, mail.SMTPAuthLogin)
}

// String returns the server's URL without credentials.
func (s *SMTP) String() string {
	if s.implicit {
		return "smtps://" + s.address
	}
	return "smtp://" + s.address
}

// GoString keeps the password out of %#v.
func (s *SMTP) GoString() string { return s.String() }

// Send sends one receipt. Only a 5xx to the recipient or the content is
// [ErrPermanent]. Rejected credentials or a rejected sender are errors of the
// configuration, and the receipt is sent after they are fixed.
func (s *SMTP) Send(ctx context.Context, message Message) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection, which the client leaves open if the login fails

	var options []mail.Option
	if isASCII(message.To.Address) {
		// SMTPUTF8, if requested without need, makes a mail undeliverable beyond older servers.
		options = append(options, mail.WithoutSMTPUTF8())
	}
	client, session, err := s.connect(ctx, options...)
	if err != nil {
		return err
	}
	if utf8, _ := session.Extension("SMTPUTF8"); !utf8 && !isASCII(message.To.Address) {
		return fmt.Errorf("%w: %s does not support non-ASCII addresses (no SMTPUTF8)", ErrPermanent, s)
	}
	if err := client.SendWithSMTPClient(session, message.mime()); err != nil {
		if cause := ctx.Err(); cause != nil {
			return fmt.Errorf("%w: %w", cause, classify(err))
		}
		return classify(err)
	}
	_ = client.CloseWithSMTPClient(session) // the mail is accepted even if QUIT fails
	return nil
}

// Check connects and logs in like [SMTP.Send] but sends no mail.
func (s *SMTP) Check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, session, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if err := session.Noop(); err != nil {
		return fmt.Errorf("receipts: NOOP to %s: %w", s, err)
	}
	_ = client.CloseWithSMTPClient(session) // the check succeeded even if QUIT fails
	return nil
}

// connect opens a connection and logs in. The connection is closed when ctx is done.
func (s *SMTP) connect(ctx context.Context, options ...mail.Option) (*mail.Client, *smtp.Client, error) {
	dial := func(dialCtx context.Context, network, _ string) (net.Conn, error) {
		conn, err := s.dial(dialCtx, network)
		if err == nil {
			// Once connected, the client ignores the context.
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
	client, err := mail.NewClient(s.host, append(slices.Concat(s.options, options), mail.WithDialContextFunc(dial))...)
	if err != nil {
		return nil, nil, fmt.Errorf("receipts: mail client: %w", err)
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("receipts: connect to %s: %w", s, err)
	}
	return client, session, nil
}

func (s *SMTP) dial(ctx context.Context, network string) (net.Conn, error) {
	if s.implicit {
		dialer := tls.Dialer{Config: s.tls}
		return dialer.DialContext(ctx, network, s.address)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, s.address)
}

// classify returns the library's error in a form that is safe to log.
func classify(err error) error {
	var sendErr *mail.SendError
	if !errors.As(err, &sendErr) {
		return fmt.Errorf("receipts: send: %w", err)
	}
	aboutMail := sendErr.Reason == mail.ErrSMTPRcptTo || sendErr.Reason == mail.ErrSMTPData || sendErr.Reason == mail.ErrSMTPDataClose
	return &SendError{
		Stage:     sendErr.Reason.String(),
		Code:      sendErr.ErrorCode(),
		Status:    sendErr.EnhancedStatusCode(),
		Detail:    sendErr.Error(),
		permanent: aboutMail && sendErr.ErrorCode() >= 500,
	}
}

// smtpURL is the parsed URL of a mail server.
type smtpURL struct {
	scheme   string
	user     string
	password string
	host     string
	port     int
}

// parseSMTPURL does not wrap errors of url.Parse, because they quote the whole URL.
func parseSMTPURL(rawURL string) (smtpURL, error) {
	const form = "receipts: SMTP URL: want smtp://user:password@host:port or smtps://…"
	parsed, err := url.Parse(rawURL)
	if err != nil {
		return smtpURL{}, errors.New(form + ", special characters percent-encoded")
	}
	result := smtpURL{scheme: parsed.Scheme, host: parsed.Hostname(), user: parsed.User.Username()}
	switch parsed.Scheme {
	case "smtp":
		result.port = 587
	case "smtps":
		result.port = 465
	default:
		return smtpURL{}, errors.New(form + ": unknown scheme")
	}
	if result.host == "" {
		return smtpURL{}, errors.New(form + ": no host")
	}
	if (parsed.Path != "" && parsed.Path != "/") || parsed.RawQuery != "" || parsed.Fragment != "" {
		return smtpURL{}, errors.New(form + ": nothing may follow the port")
	}
	if port := parsed.Port(); port != "" {
		result.port, err = strconv.Atoi(port)
		if err != nil || result.port < 1 || result.port > 65535 {
			return smtpURL{}, errors.New(form + ": the port is not a number from 1 to 65535")
		}
	}
	password, given := parsed.User.Password()
	if (result.user == "") != (!given || password == "") {
		return smtpURL{}, errors.New(form + ": user and password go together")
	}
	result.password = password
	return result, nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
