package receipts

import (
	"context"
	"fmt"
	netmail "net/mail"
	"time"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"
)

// Message is a rendered receipt. It is the same in every attempt of an order.
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

// Mailer delivers receipts.
type Mailer interface {
	// Send returns nil if the mail was accepted for delivery. It returns an error
	// that wraps [ErrPermanent] if a retry cannot succeed. After any other error,
	// such as a lost connection, the mail may have been accepted, and is sent again.
	// Errors are logged, so they must not quote the recipient. Send is called by
	// several goroutines at once.
	Send(ctx context.Context, message Message) error
}

// mime returns the message in the format of RFC 5322. Bodies are quoted-printable
// and headers are encoded words, so no content can end a line or make it too long.
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

// parseSender accepts RECEIPTS_FROM: an address, or "Shop <shop@example.com>". The
// address must be ASCII, because its domain is part of every Message-ID.
func parseSender(text string) (netmail.Address, error) {
	sender, err := netmail.ParseAddress(text)
	if err != nil {
		return netmail.Address{}, fmt.Errorf("receipts: sender: %w", err)
	}
	if _, err := parseAddress(sender.Address); err != nil || !isASCII(sender.Address) {
		return netmail.Address{}, fmt.Errorf("receipts: sender %q: want a plain ASCII address", sender.Address)
	}
	return *sender, nil
}
