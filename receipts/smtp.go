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

// stepTimeout bounds connecting and logging in, and then the mail itself. The
// caller's context bounds the whole.
const stepTimeout = 30 * time.Second

// SMTP is a [Mailer] that hands each receipt to a mail server, on a connection
// of its own: receipts are rare next to what a mail server can take, and a
// connection that is never idle cannot have gone stale.
type SMTP struct {
	address string // host and port
	host    string
	tls     *tls.Config
	// implicit says that the connection starts with TLS (smtps).
	implicit bool
	options  []mail.Option
}

// NewSMTP returns an SMTP for a URL such as smtp://user:password@host:587. The
// port defaults to 587, for smtps:// (TLS from the first byte) to 465; special
// characters in the password are percent-encoded. No error holds the password.
//
// On smtp:// the connection is encrypted when the server offers STARTTLS. With
// credentials it must, and must prove its name, unless it is on this machine:
// nobody else is to be told the password.
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
		// Whoever could forge a certificate could as well hide the STARTTLS offer,
		// so insisting on a valid one would only trade encryption for no mail.
		s.tls.InsecureSkipVerify = true // opportunistic (RFC 7435): no password travels off this machine
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if server.user != "" {
		s.options = append(s.options, mail.WithUsername(server.user), mail.WithPassword(server.password), loginOption(server.host))
	}
	s.options = append(s.options,
		mail.WithPort(server.port),
		mail.WithTLSConfig(s.tls),
		mail.WithTimeout(stepTimeout),
		mail.WithoutNoop(), // a fresh connection needs no probing
		mail.WithoutRset(), // and no clearing for a next mail
	)
	if _, err := mail.NewClient(s.host, s.options...); err != nil {
		return nil, fmt.Errorf("receipts: mail client: %w", err)
	}
	return s, nil
}

// loginOption picks the strongest mechanism the server offers. One that shows
// the password is used over TLS only, or to this machine.
func loginOption(host string) mail.Option {
	if isLoopback(host) {
		return mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlainNoEnc, mail.SMTPAuthLoginNoEnc)
	}
	return mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover)
}

// String names the server without credentials, for people.
func (s *SMTP) String() string {
	if s.implicit {
		return "smtps://" + s.address
	}
	return "smtp://" + s.address
}

// GoString keeps the password out of %#v as well.
func (s *SMTP) GoString() string { return s.String() }

// Send delivers one receipt. Only a 5xx about the recipient or the content is
// [ErrPermanent]: refused credentials or a refused sender are faults of the
// configuration, and the receipt goes out once they are mended.
func (s *SMTP) Send(ctx context.Context, message Message) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection, which the client leaves open when the login fails

	var options []mail.Option
	if isASCII(message.To.Address) {
		// Asking for SMTPUTF8 without need makes a mail undeliverable behind older servers.
		options = append(options, mail.WithoutSMTPUTF8())
	}
	client, session, err := s.connect(ctx, options...)
	if err != nil {
		return err
	}
	if utf8, _ := session.Extension("SMTPUTF8"); !utf8 && !isASCII(message.To.Address) {
		return fmt.Errorf("%w: %s takes no addresses beyond ASCII (no SMTPUTF8)", ErrPermanent, s)
	}
	if err := client.SendWithSMTPClient(session, message.mime()); err != nil {
		if cause := ctx.Err(); cause != nil {
			return fmt.Errorf("%w: %w", cause, classify(err))
		}
		return classify(err)
	}
	_ = client.CloseWithSMTPClient(session) // the mail is accepted, whatever becomes of the QUIT
	return nil
}

// Check connects and logs in as [SMTP.Send] does, and sends no mail: it tells
// whether the server is there and takes the credentials.
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
	_ = client.CloseWithSMTPClient(session) // it has answered, whatever becomes of the QUIT
	return nil
}

// connect opens a connection, which ends with ctx, and logs in.
func (s *SMTP) connect(ctx context.Context, options ...mail.Option) (*mail.Client, *smtp.Client, error) {
	dial := func(dialCtx context.Context, network, _ string) (net.Conn, error) {
		conn, err := s.dial(dialCtx, network)
		if err == nil {
			// Once connected, the client looks at its own timeout only.
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

// classify turns the library's error into one that is safe to log.
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

// smtpURL is a mail server's URL, taken apart.
type smtpURL struct {
	scheme   string
	user     string
	password string
	host     string
	port     int
}

// parseSMTPURL never wraps url.Parse's errors: they quote the whole URL.
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
