package receipts

import (
	"context"
	_ "embed"
	"fmt"
	netmail "net/mail"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/google/uuid"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/payments"
)

// Mailer delivers receipts, also concurrently.
type Mailer interface {
	// Send is repeated after an error that is not [jobs.ErrPermanent]. Errors are logged, so they must
	// not quote the recipient.
	Send(ctx context.Context, orderID uuid.UUID, receipt *mail.Msg) error
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

//go:embed receipt.txt.tmpl
var text string

var textTemplate = template.Must(template.New("receipt").Funcs(template.FuncMap{"amount": payments.FormatAmount}).Parse(text))

// Order is what a receipt shows of a paid order.
type Order struct {
	Shop     string // the sender's name
	ID       uuid.UUID
	Email    string
	Currency string
	Amount   int64 // in the currency's smallest unit
	Items    []Item
	PaidAt   time.Time
}

// Item is a line of an order.
type Item struct {
	SKU         string `json:"sku"`
	Description string `json:"description"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// Total is the price of all units.
func (i Item) Total() int64 { return i.Quantity * i.UnitAmount }

// Name is the description and the SKU, or only this.
func (i Item) Name() string {
	if description := oneLine(i.Description); description != "" {
		return description + " (" + oneLine(i.SKU) + ")"
	}
	return oneLine(i.SKU)
}

// oneLine removes line breaks, so that an item cannot look like a total.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// newMessage renders a receipt. It is the same in every attempt of an order.
func newMessage(sender string, o Order) (*mail.Msg, error) {
	from, err := netmail.ParseAddress(sender)
	if err != nil {
		return nil, fmt.Errorf("receipts: sender: %w", err)
	}
	if !ValidAddress(o.Email) {
		return nil, fmt.Errorf("%w: not a plain e-mail address", jobs.ErrPermanent)
	}
	o.Shop = oneLine(from.Name)
	subject := "Receipt for order " + o.ID.String()
	if o.Shop != "" {
		subject = o.Shop + ": receipt for order " + o.ID.String()
	}
	var text strings.Builder
	if err := textTemplate.Execute(&text, o); err != nil {
		return nil, fmt.Errorf("receipts: render: %w", err)
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
	return message, nil
}
