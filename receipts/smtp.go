package receipts

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/internal/jobs"
)

const (
	stepTimeout = 30 * time.Second // of connecting with login, and then of sending
	maxReceived = 256 << 10        // bytes from the server on one connection
)

// SMTP is a [Mailer] that sends each receipt on a new connection.
type SMTP struct {
	url, address, name string
	implicitTLS        bool
	tls                *tls.Config
	options            []mail.Option
}

// NewSMTP accepts smtp://user:password@host:587, or smtps:// for implicit TLS. No error contains
// the password. Credentials require encryption with a valid certificate, except on loopback. hello
// is our name in EHLO.
func NewSMTP(rawURL, hello string) (*SMTP, error) {
	errForm := errors.New("receipts: SMTP URL: want smtp://host:port or smtp://user:password@host:port, or smtps://, " +
		"with an IPv6 address in brackets, special characters percent-encoded, and nothing after the port")
	server, err := url.Parse(rawURL)
	if err != nil {
		return nil, errForm // err quotes the URL
	}
	host, user := server.Hostname(), server.User.Username()
	password, _ := server.User.Password()
	port, err := strconv.Atoi(cmp.Or(server.Port(), map[string]string{"smtp": "587", "smtps": "465"}[server.Scheme]))
	switch {
	case server.Scheme != "smtp" && server.Scheme != "smtps",
		host == "", strings.Contains(host, ":") != (server.Host[0] == '['),
		err != nil || port < 1 || port > 65535,
		strings.Trim(server.Path, "/") != "" || server.RawQuery != "" || server.Fragment != "",
		(user == "") != (password == ""):
		return nil, errForm
	}
	ip, _ := netip.ParseAddr(host)
	local := host == "localhost" || ip.Unmap().IsLoopback()
	name, _, _ := strings.Cut(host, "%") // a certificate names no zone
	s := &SMTP{
		address:     net.JoinHostPort(host, strconv.Itoa(port)),
		name:        name,
		implicitTLS: server.Scheme == "smtps",
		tls:         &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12},
	}
	s.url = (&url.URL{Scheme: server.Scheme, Host: s.address}).String()
	if local {
		s.name = "localhost" // the library knows only three loopback addresses, and logs in elsewhere only with TLS
	}
	s.options = []mail.Option{
		mail.WithPort(port),
		mail.WithTLSConfig(s.tls),
		mail.WithTimeout(stepTimeout),
		mail.WithHELO(hello),
		mail.WithoutNoop(),
		mail.WithoutRset(),
		mail.WithoutSMTPUTF8(), // which older servers reject
	}
	switch {
	case s.implicitTLS:
		s.options = append(s.options, mail.WithSSL())
	case user != "" && !local:
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSMandatory))
	default:
		// Checking the certificate would not help: an attacker who can forge one can also hide the
		// STARTTLS offer, and no password leaves this machine.
		s.tls.InsecureSkipVerify = true
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if user != "" {
		s.options = append(s.options, mail.WithUsername(user), mail.WithPassword(password),
			mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthPlain, mail.SMTPAuthLogin))
	}
	return s, nil
}

func (s *SMTP) String() string { return s.url }

// ErrCredentials means that the server rejected our user or password. It is not [jobs.ErrPermanent],
// because each receipt can be sent once the configuration is fixed.
var ErrCredentials = errors.New("receipts: the mail server rejects the credentials")

// Check connects and logs in as for a mail.
func (s *SMTP) Check(ctx context.Context) error { return s.send(ctx) }

// Send treats rejected credentials and a rejected sender as temporary.
func (s *SMTP) Send(ctx context.Context, _ uuid.UUID, receipt *mail.Msg) error {
	return s.send(ctx, receipt)
}

func (s *SMTP) send(ctx context.Context, messages ...*mail.Msg) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dial := func(dialCtx context.Context, _, _ string) (net.Conn, error) { // the library's address lacks the brackets of IPv6
		dialled, err := new(net.Dialer).DialContext(dialCtx, "tcp", s.address)
		if err != nil {
			return nil, err
		}
		// The library ignores the context after this, and leaks the connection if the login fails.
		context.AfterFunc(ctx, func() { _ = dialled.Close() })
		conn := limitedConn{dialled, io.LimitReader(dialled, maxReceived)}
		if !s.implicitTLS {
			return conn, nil
		}
		encrypted := tls.Client(conn, s.tls)
		return encrypted, encrypted.HandshakeContext(dialCtx)
	}
	client, err := mail.NewClient(s.name, append(slices.Clone(s.options), mail.WithDialContextFunc(dial))...)
	if err != nil {
		return fmt.Errorf("receipts: mail client: %w", err)
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	// 535: wrong; 534 and 538: the server requires another kind (RFC 4954).
	if reply, ok := errors.AsType[*textproto.Error](err); ok && slices.Contains([]int{534, 535, 538}, reply.Code) {
		err = fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	if err != nil {
		return fmt.Errorf("receipts: connect to %s: %w", s, withContext(ctx, err))
	}
	err = client.SendWithSMTPClient(session, messages...)
	if failed, ok := errors.AsType[*mail.SendError](err); ok {
		err = &sendError{failed}
	}
	if err != nil {
		return withContext(ctx, err)
	}
	_ = client.CloseWithSMTPClient(session) // the mail is accepted even if QUIT fails
	return nil
}

// limitedConn is a connection whose server cannot fill the memory: the library reads lines of any length.
type limitedConn struct {
	net.Conn
	reader io.Reader
}

func (c limitedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// withContext adds the reason why ctx has ended, if it has.
func withContext(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// sendError omits the server's text, which may quote the recipient.
type sendError struct{ cause *mail.SendError }

func (e *sendError) Error() string {
	if e.cause.ErrorCode() == 0 {
		return fmt.Sprintf("receipts: %s: no response", e.cause.Reason)
	}
	return strings.TrimSpace(fmt.Sprintf("receipts: %s: reply %d %s", e.cause.Reason, e.cause.ErrorCode(), e.cause.EnhancedStatusCode()))
}

// aboutMail matches the status codes of RFC 3463 about this recipient or this message. Others, and
// replies without a code, are about us or the server. For example, Postfix replies to the recipient
// with 5.7.1 (relay access denied) and with 5.5.2 (our greeting).
var aboutMail = regexp.MustCompile(`^5\.(1\.([123469]|10)|2\.\d+|3\.4|6\.\d+)$`)

// Is reports whether the error is [jobs.ErrPermanent].
func (e *sendError) Is(target error) bool {
	afterSender := slices.Contains([]mail.SendErrReason{mail.ErrSMTPRcptTo, mail.ErrSMTPData, mail.ErrSMTPDataClose}, e.cause.Reason)
	return target == jobs.ErrPermanent && afterSender && e.cause.ErrorCode() >= 500 && aboutMail.MatchString(e.cause.EnhancedStatusCode())
}
