package receipts

import (
	_ "embed"
	"fmt"
	netmail "net/mail"
	"strings"
	"text/template"
	"time"
	"unicode"

	"github.com/google/uuid"
)

//go:embed receipt.txt.tmpl
var text string

var textTemplate = template.Must(template.New("receipt").Funcs(template.FuncMap{"amount": formatAmount}).Parse(text))

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

// newMessage renders a receipt, which is the same in every attempt of an order.
func newMessage(from netmail.Address, o order) (Message, error) {
	if !ValidAddress(o.Email) {
		return Message{}, fmt.Errorf("%w: not a plain e-mail address", ErrPermanent)
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
	return Message{
		OrderID: o.ID,
		ID:      "receipt." + o.ID.String() + "@" + domain,
		Date:    o.PaidAt.UTC(),
		From:    from,
		To:      netmail.Address{Address: o.Email},
		Subject: subject,
		Text:    text.String(),
	}, nil
}

// formatAmount formats ("eur", 1999) as "19.99 EUR", without a float.
func formatAmount(currency string, amount int64) string {
	places := decimals(currency)
	digits := fmt.Sprintf("%0*d", places+1, amount)
	if places > 0 {
		point := len(digits) - places
		digits = digits[:point] + "." + digits[point:]
	}
	return digits + " " + strings.ToUpper(currency)
}

// decimals is Stripe's number of decimal places, not that of ISO 4217 for ISK and UGX
// (https://docs.stripe.com/currencies#special-cases).
func decimals(currency string) int {
	switch currency {
	case "bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf":
		return 0
	case "bhd", "jod", "kwd", "omr", "tnd":
		return 3
	default:
		return 2
	}
}
