package receipts

import (
	"context"
	"fmt"
	netmail "net/mail"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"
)

// Message is one receipt, ready to send. The same order always gives the same
// message, however often it is tried.
type Message struct {
	OrderID uuid.UUID
	ID      string // Message-ID without its angle brackets
	Date    time.Time
	From    netmail.Address
	To      netmail.Address
	Subject string
	Text    string // the same content twice, for the recipient's program to choose
	HTML    string
}

// Mailer hands a receipt to whatever delivers it. Nil means that the mail was
// accepted and is now somebody else's responsibility. An error that wraps
// [ErrPermanent] says that trying again is useless; any other error, a lost
// connection included, means that the mail may or may not have been accepted,
// and it will be sent again. Error texts are logged, so they must not quote
// the recipient. Send is called by several goroutines at once.
type Mailer interface {
	Send(ctx context.Context, message Message) error
}

// mime writes the message in Internet form (RFC 5322). Bodies are
// quoted-printable and headers are encoded words, so no content can end a line
// early or make one too long.
func (m Message) mime() *mail.Msg {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&m.From)
	msg.ToMailAddress(&m.To)
	msg.Subject(m.Subject)
	msg.SetDateWithValue(m.Date)
	msg.SetMessageIDWithValue(m.ID)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // keeps vacation notices away (RFC 3834)
	msg.SetBodyString(mail.TypeTextPlain, m.Text)
	msg.AddAlternativeString(mail.TypeTextHTML, m.HTML)
	return msg
}

// maxAddress is the longest address SMTP carries, in bytes (RFC 5321, 4.5.3.1.3).
const maxAddress = 254

// parseAddress accepts one bare address, "name@example.com". It is stricter than
// net/mail, which also takes display names, comments, quoted blanks and
// invisible characters such as U+2028. Letters beyond ASCII are fine.
func parseAddress(text string) (netmail.Address, error) {
	address, err := netmail.ParseAddress(text)
	if err != nil || address.Address != text || len(text) > maxAddress || strings.ContainsFunc(text, unsafeInAddress) {
		return netmail.Address{}, fmt.Errorf("%w: not a plain e-mail address", ErrPermanent)
	}
	return *address, nil
}

// ValidAddress says whether a receipt can be sent to an address: one that
// parseAddress accepts, in ASCII. A mail server may take no other, and nobody
// should learn that after the card was charged.
func ValidAddress(text string) bool {
	_, err := parseAddress(text)
	return err == nil && isASCII(text)
}

func unsafeInAddress(r rune) bool {
	return !unicode.IsPrint(r) || strings.ContainsRune(` "\<>,;:()[]`, r)
}

// parseSender accepts RECEIPTS_FROM: an address, or "Shop <shop@example.com>".
// Its domain ends every Message-ID, so the address is ASCII; the name is free.
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

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}
