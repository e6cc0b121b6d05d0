package receipts

import (
	"embed"
	"fmt"
	htmltemplate "html/template"
	netmail "net/mail"
	"strings"
	texttemplate "text/template"
	"time"
	"unicode"

	"github.com/google/uuid"
)

//go:embed templates
var templates embed.FS

// order is the content of a receipt.
type order struct {
	id       uuid.UUID
	email    string
	currency string
	amount   int64 // in the currency's smallest unit, like every amount
	items    []item
	paidAt   time.Time
}

// item is one line of orders.items.
type item struct {
	SKU         string `json:"sku"`
	Description string `json:"description"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// renderer renders orders as messages.
type renderer struct {
	from   netmail.Address
	domain string // of the sender's address
	text   *texttemplate.Template
	html   *htmltemplate.Template
}

func newRenderer(sender string) (*renderer, error) {
	from, err := parseSender(sender)
	if err != nil {
		return nil, err
	}
	text, err := texttemplate.ParseFS(templates, "templates/receipt.txt.tmpl")
	if err != nil {
		return nil, fmt.Errorf("receipts: %w", err)
	}
	html, err := htmltemplate.ParseFS(templates, "templates/receipt.html.tmpl")
	if err != nil {
		return nil, fmt.Errorf("receipts: %w", err)
	}
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	return &renderer{from: from, domain: domain, text: text, html: html}, nil
}

// page and line are the data of the templates.
type (
	page struct {
		OrderID string
		PaidAt  string
		Items   []line
		Total   string
	}
	line struct {
		Name      string
		Quantity  int64
		UnitPrice string
		Total     string
	}
)

// message renders the receipt of a paid order. Its date is the time of the payment,
// and its Message-ID is derived from the order, so every attempt sends the same mail
// and a duplicate is recognisable.
func (r *renderer) message(o order) (Message, error) {
	to, err := parseAddress(o.email)
	if err != nil {
		return Message{}, err
	}
	p := page{
		OrderID: o.id.String(),
		PaidAt:  o.paidAt.UTC().Format("2 January 2006, 15:04 UTC"),
		Total:   formatAmount(o.currency, o.amount),
	}
	for _, it := range o.items {
		p.Items = append(p.Items, line{
			Name:      oneLine(strings.TrimSpace(it.SKU + " " + it.Description)),
			Quantity:  it.Quantity,
			UnitPrice: formatAmount(o.currency, it.UnitAmount),
			Total:     formatAmount(o.currency, it.Quantity*it.UnitAmount),
		})
	}
	var text, html strings.Builder
	if err := r.text.Execute(&text, p); err != nil {
		return Message{}, fmt.Errorf("receipts: render text: %w", err)
	}
	if err := r.html.Execute(&html, p); err != nil {
		return Message{}, fmt.Errorf("receipts: render html: %w", err)
	}
	return Message{
		OrderID: o.id,
		ID:      "receipt." + o.id.String() + "@" + r.domain,
		Date:    o.paidAt.UTC(),
		From:    r.from,
		To:      to,
		Subject: "Receipt for order " + o.id.String(),
		Text:    text.String(),
		HTML:    html.String(),
	}, nil
}

// oneLine removes line breaks and characters that change the reading direction from
// an item's name, because both could fake a total.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		case unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp):
			return ' '
		default:
			return r
		}
	}, s)
}
