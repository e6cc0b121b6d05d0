package receipts

import (
	"context"
	"errors"
	"fmt"
	netmail "net/mail"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"
)

// Message is a rendered receipt, the same in every attempt of an order.
type Message struct {
	OrderID uuid.UUID
	ID      string // Message-ID without its angle brackets
	Date    time.Time
	From    netmail.Address
	To      netmail.Address
	Subject string
	Text    string // the content in two formats
	HTML    string
}

// ErrPermanent means that a retry cannot succeed: the mail server rejected the
// recipient or the content with a 5xx, or the job is invalid.
var ErrPermanent = errors.New("receipts: permanent failure")

// Mailer delivers receipts. It is safe for concurrent use.
type Mailer interface {
	// Send returns nil if the mail was accepted for delivery. An error that wraps
	// [ErrPermanent] is not retried. After any other error the mail is sent again,
	// although it may have been accepted. Errors are logged, so they must not quote the
	// recipient.
	Send(ctx context.Context, message Message) error
}

// mime encodes the message by RFC 5322. Bodies are quoted-printable and headers are
// encoded words, so no content can end a line or make it too long.
func (m Message) mime() *mail.Msg {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&m.From)
	msg.ToMailAddress(&m.To)
	msg.Subject(m.Subject)
	msg.SetDateWithValue(m.Date)
	msg.SetMessageIDWithValue(m.ID)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // prevents vacation notices (RFC 3834)
	msg.SetBodyString(mail.TypeTextPlain, m.Text)
	msg.AddAlternativeString(mail.TypeTextHTML, m.HTML)
	return msg
}

func parseSender(text string) (netmail.Address, error) {
	sender, err := netmail.ParseAddress(text)
	if err != nil {
		return netmail.Address{}, fmt.Errorf("receipts: sender: %w", err)
	}
	if !ValidAddress(sender.Address) {
		return netmail.Address{}, fmt.Errorf("receipts: sender %q: want an address such as shop@example.com", sender.Address)
	}
	return *sender, nil
}

// maxAddress is SMTP's limit in bytes (RFC 5321, 4.5.3.1.3).
const maxAddress = 254

// addressPattern is a dot-atom of at most 64 characters at a host name with a dot (RFC
// 5321, 4.5.3.1.1 and 4.1.2). openapi.yaml has the same pattern. RE2 has no lookahead,
// so it accepts two dots in a row.
var addressPattern = regexp.MustCompile(
	"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]([A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{0,62}[A-Za-z0-9!#$%&'*+/=?^_`{|}~-])?" +
		`@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// ValidAddress reports whether an order may have this address: plain ASCII at a host
// name. Some mail servers reject others, which would be noticed only after the charge.
func ValidAddress(text string) bool {
	return len(text) <= maxAddress && addressPattern.MatchString(text) && !strings.Contains(text, "..")
}
