package receipts

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	netmail "net/mail"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/internal/currency"
	"example.com/orders-api/internal/jobs"
)

// Message is a rendered receipt: its parts, and the mail that is made of them.
type Message struct {
	*mail.Msg

	OrderID   uuid.UUID
	Sender    *netmail.Address
	Recipient string
	Subject   string
	Text      string
}

// Mailer delivers receipts, also concurrently.
type Mailer interface {
	// Send is repeated after an error that is not [jobs.ErrPermanent]. Errors are logged, so they must
	// not quote the recipient.
	Send(ctx context.Context, message Message) error
}

const maxAddress = 254 // bytes (RFC 5321, 4.5.3.1.3)

// addressPattern is that of openapi.yaml without its lookahead for two dots in a row.
var addressPattern = regexp.MustCompile(
	"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]([A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{0,62}[A-Za-z0-9!#$%&'*+/=?^_`{|}~-])?" +
		`@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// ValidAddress reports whether an order may have this address. Others are rejected before the
// charge, because a mail server would reject them after it.
func ValidAddress(text string) bool {
	return len(text) <= maxAddress && addressPattern.MatchString(text) && !strings.Contains(text, "..")
}

// Files is a [Mailer] that writes each receipt to an .eml file.
type Files struct {
	folder string
}

// NewFiles creates a missing folder, which is private because receipts contain addresses. It creates
// and removes a file, to check that it can write.
func NewFiles(folder string) (*Files, error) {
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(folder, ".probe-"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("receipts: %w", err)
	}
	return &Files{folder: folder}, nil
}

// Send writes receipt-<order id>.eml, and returns once a power failure cannot remove it, because
// the receipt's job is deleted then (R15, staged receipt). It renames a complete file, so that no
// reader finds a part of a receipt.
func (f *Files) Send(_ context.Context, message Message) error {
	name := "receipt-" + message.OrderID.String() + ".eml"
	part := filepath.Join(f.folder, "."+name)
	err := message.WriteToFile(part)
	if err == nil {
		err = syncToDisk(part)
	}
	if err == nil {
		err = os.Rename(part, filepath.Join(f.folder, name))
	}
	if err == nil {
		err = syncToDisk(f.folder)
	}
	if err != nil {
		return fmt.Errorf("receipts: %w", err)
	}
	return nil
}

func syncToDisk(path string) error {
	file, err := os.Open(path) //nolint:gosec // in the folder that the operator names
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

//go:embed receipt.txt.tmpl
var text string

var textTemplate = template.Must(template.New("receipt").Funcs(template.FuncMap{"amount": currency.Format}).Parse(text))

type order struct {
	Shop     string // the sender's name
	ID       uuid.UUID
	Email    string
	Currency string
	Amount   int64 // in the currency's smallest unit
	Items    []item
	PaidAt   time.Time
}

type item struct {
	SKU         string `json:"sku"`
	Description string `json:"description"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

func (i item) Total() int64 { return i.Quantity * i.UnitAmount }

func (i item) Name() string {
	if description := oneLine(i.Description); description != "" {
		return description + " (" + oneLine(i.SKU) + ")"
	}
	return oneLine(i.SKU)
}

// oneLine removes line breaks and bidirectional controls, which could fake a total.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		case unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp):
			return ' '
		default:
			return r
		}
	}, text))
}

// newMessage renders a receipt. It is the same in every attempt of an order.
func newMessage(sender string, o order) (Message, error) {
	from, err := netmail.ParseAddress(sender)
	if err != nil {
		return Message{}, fmt.Errorf("receipts: sender: %w", err)
	}
	if !ValidAddress(o.Email) {
		return Message{}, fmt.Errorf("%w: not a plain e-mail address", jobs.ErrPermanent)
	}
	o.Shop = oneLine(from.Name)
	subject := "Receipt for order " + o.ID.String()
	if o.Shop != "" {
		subject = o.Shop + ": receipt for order " + o.ID.String()
	}
	var text strings.Builder
	if err := textTemplate.Execute(&text, o); err != nil {
		return Message{}, fmt.Errorf("receipts: render: %w", err)
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	// The library encodes body and headers, so no content can add a line to them.
	message := mail.NewMsg(mail.WithNoDefaultUserAgent())
	message.FromMailAddress(from)
	message.ToMailAddress(&netmail.Address{Address: o.Email})
	message.Subject(subject)
	message.SetDateWithValue(o.PaidAt.UTC())
	message.SetMessageIDWithValue("receipt." + o.ID.String() + "@" + domain)
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834
	message.SetBodyString(mail.TypeTextPlain, text.String())
	return Message{message, o.ID, from, o.Email, subject, text.String()}, nil
}
