package receipts

import (
	"context"
	"errors"
	"fmt"
	netmail "net/mail"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"
)

// Message is a rendered receipt.
type Message struct {
	OrderID uuid.UUID
	ID      string // Message-ID
	Date    time.Time
	From    netmail.Address
	To      netmail.Address
	Subject string
	Text    string
}

// ErrPermanent means that a retry cannot succeed.
var ErrPermanent = errors.New("receipts: permanent failure")

// Mailer delivers receipts, also concurrently.
type Mailer interface {
	// Send is repeated after an error that is not [ErrPermanent]. Errors are logged, so they must
	// not quote the recipient.
	Send(ctx context.Context, message Message) error
}

// mime encodes body and headers, so no content can end a line.
func (m Message) mime() *mail.Msg {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&m.From)
	msg.ToMailAddress(&m.To)
	msg.Subject(m.Subject)
	msg.SetDateWithValue(m.Date)
	msg.SetMessageIDWithValue(m.ID)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834
	msg.SetBodyString(mail.TypeTextPlain, m.Text)
	return msg
}

func parseSender(text string) (netmail.Address, error) {
	sender, err := netmail.ParseAddress(text)
	if err != nil || !ValidAddress(sender.Address) {
		return netmail.Address{}, fmt.Errorf("receipts: sender %q: want an address such as Shop <shop@example.com>", text)
	}
	return *sender, nil
}

const maxAddress = 254 // bytes (RFC 5321, 4.5.3.1.3)

// addressPattern is that of openapi.yaml without its lookahead for two dots in a row.
var addressPattern = regexp.MustCompile(
	"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]([A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{0,62}[A-Za-z0-9!#$%&'*+/=?^_`{|}~-])?" +
		`@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// ValidAddress reports whether an order may have this address. A mail server would reject others
// after the charge.
func ValidAddress(text string) bool {
	return len(text) <= maxAddress && addressPattern.MatchString(text) && !strings.Contains(text, "..")
}

// Files is a [Mailer] that writes each receipt to an .eml file.
type Files struct {
	folder string
}

// NewFiles creates a missing folder, private because receipts contain addresses.
func NewFiles(folder string) (*Files, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("receipts: %w", err)
	}
	return &Files{folder: folder}, nil
}

// Send writes receipt-<order id>.eml. If the process dies meanwhile, the receipt is sent again.
func (f *Files) Send(_ context.Context, message Message) error {
	err := message.mime().WriteToFile(filepath.Join(f.folder, "receipt-"+message.OrderID.String()+".eml"))
	if err != nil {
		return fmt.Errorf("receipts: %w", err)
	}
	return nil
}
