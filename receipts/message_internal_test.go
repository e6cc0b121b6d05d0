package receipts

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"io"
	"maps"
	"mime/quotedprintable"
	netmail "net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/wneessen/go-mail"

	"example.com/orders-api/internal/jobs"
)

func testOrder() Order {
	return Order{
		ID:       uuid.MustParse("0b6b2c6e-8f0a-8b6e-9c55-2f1f0d6a7e11"),
		Email:    "jane@example.com",
		Currency: "eur",
		Amount:   4498,
		Items: []Item{
			{SKU: "mug", Description: "Mug, blue", Quantity: 2, UnitAmount: 1999},
			{SKU: "sticker", Quantity: 1, UnitAmount: 500},
		},
		PaidAt: time.Date(2026, time.March, 4, 17, 6, 7, 0, time.UTC),
	}
}

const testSender = "The Shop <shop@example.com>"

type parsed struct {
	Header netmail.Header
	Text   string
}

// parseMail parses a mail and checks that it has exactly the intended headers, one recipient
// and valid lines.
func parseMail(t testing.TB, raw []byte) parsed {
	t.Helper()
	for line := range bytes.Lines(raw) {
		require.True(t, bytes.HasSuffix(line, []byte("\r\n")), "line without CRLF: %q", line)
		content := bytes.TrimSuffix(line, []byte("\r\n"))
		require.LessOrEqual(t, len(content), 998, "line too long (RFC 5322)")
		require.False(t, bytes.ContainsAny(content, "\r\n\x00"), "stray control character: %q", content)
	}
	msg, err := netmail.ReadMessage(bytes.NewReader(raw))
	require.NoError(t, err)
	require.Equal(t,
		[]string{"Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To"},
		slices.Sorted(maps.Keys(msg.Header)))
	for name, values := range msg.Header {
		require.Len(t, values, 1, "header %s", name)
	}
	to, err := msg.Header.AddressList("To")
	require.NoError(t, err)
	require.Len(t, to, 1)

	require.Equal(t, "text/plain; charset=UTF-8", msg.Header.Get("Content-Type"))
	require.Equal(t, "quoted-printable", msg.Header.Get("Content-Transfer-Encoding"))
	body, err := io.ReadAll(quotedprintable.NewReader(bufio.NewReader(msg.Body)))
	require.NoError(t, err)
	return parsed{Header: msg.Header, Text: strings.ReplaceAll(string(body), "\r\n", "\n")}
}

func writeMail(t testing.TB, message *mail.Msg) []byte {
	t.Helper()
	var raw bytes.Buffer
	_, err := message.WriteTo(&raw)
	require.NoError(t, err)
	return raw.Bytes()
}

func TestMessage_content(t *testing.T) {
	t.Parallel()
	message, err := newMessage(testSender, testOrder())
	require.NoError(t, err)
	mail := parseMail(t, writeMail(t, message))

	require.Equal(t, "The Shop: receipt for order 0b6b2c6e-8f0a-8b6e-9c55-2f1f0d6a7e11", mail.Header.Get("Subject"))
	require.Equal(t, `"The Shop" <shop@example.com>`, mail.Header.Get("From"))
	require.Equal(t, "<jane@example.com>", mail.Header.Get("To"))
	require.Equal(t, "<receipt.0b6b2c6e-8f0a-8b6e-9c55-2f1f0d6a7e11@example.com>", mail.Header.Get("Message-Id"))
	require.Equal(t, "Wed, 04 Mar 2026 17:06:07 +0000", mail.Header.Get("Date"))
	require.Equal(t, `Thank you for your order.

Shop:  The Shop
Order: 0b6b2c6e-8f0a-8b6e-9c55-2f1f0d6a7e11
Paid:  4 March 2026, 17:06 UTC

2 × Mug, blue (mug)
    19.99 EUR each, 39.98 EUR

1 × sticker
    5.00 EUR each, 5.00 EUR

Total: 44.98 EUR
`, mail.Text)

	o := testOrder()
	o.Items = append(o.Items, Item{SKU: "gift", Quantity: 2}, Item{SKU: "SAVE5", Description: "Discount", Quantity: 1, UnitAmount: -500})
	o.Amount = 3998
	discounted, err := newMessage(testSender, o)
	require.NoError(t, err)
	require.Contains(t, parseMail(t, writeMail(t, discounted)).Text, `
2 × gift
    0.00 EUR each, 0.00 EUR

1 × Discount (SAVE5)
    -5.00 EUR each, -5.00 EUR

Total: 39.98 EUR
`)

	again, err := newMessage(testSender, testOrder())
	require.NoError(t, err)
	require.Equal(t, writeMail(t, message), writeMail(t, again), "the same in every attempt")
}

func TestMessage_sender(t *testing.T) {
	t.Parallel()
	for sender, header := range map[string]string{ // "" if invalid
		"shop@example.com":             "<shop@example.com>",
		"Shop <shop@example.com>":      `"Shop" <shop@example.com>`,
		"Bücher <shop@example.com>":    "=?utf-8?q?B=C3=BCcher?= <shop@example.com>",
		"a@example.com, b@example.com": "",
		"":                             "",
		"Shop":                         "",
	} {
		message, err := newMessage(sender, testOrder())
		if header == "" {
			require.Error(t, err, sender)
			continue
		}
		require.NoError(t, err)
		mail := parseMail(t, writeMail(t, message))
		require.Equal(t, header, mail.Header.Get("From"))
		if sender == "shop@example.com" {
			require.Equal(t, "Receipt for order 0b6b2c6e-8f0a-8b6e-9c55-2f1f0d6a7e11", mail.Header.Get("Subject"))
			require.NotContains(t, mail.Text, "Shop:")
		}
	}
}

// The schema of openapi.yaml states the same rule.
func TestValidAddress(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("d", 63)
	longDomain := strings.Repeat(label+".", 2) + strings.Repeat("d", 61)
	for _, address := range []string{
		"ada@example.com",
		"ada.lovelace+tea@mail.example.com",
		"!#$%&'*+/=?^_`{|}~-@example.com",
		strings.Repeat("a", 64) + "@example.com",
		strings.Repeat("a", 64) + "@" + longDomain, // 254
		strings.Repeat("a", 64) + "@" + longDomain[1:],
	} {
		require.True(t, ValidAddress(address), "%q", address)
	}
	for _, address := range []string{
		"",
		"ada",
		"ada@",
		"ada@localhost",
		"ada@example..com",
		"ada@example.com.",
		".ada@example.com",
		"ada.@example.com",
		"a..da@example.com",
		`"a b"@example.com`,
		"ada@[127.0.0.1]",
		"ada@exämple.com",
		"ada@example.com\n",
		"ada\x00@example.co",
		strings.Repeat("a", 65) + "@example.com",
		"ada@" + label + "d.com",
		"a@" + longDomain + "." + longDomain,
		"Ada <ada@example.com>",
		"ada@example.com, eve@example.com",
		"ada@example.com\r\nBcc: eve@example.com",
		"ada\u2028@example.com",
		"ada\xff@example.com",
	} {
		require.False(t, ValidAddress(address), "%q", address)
	}
}

// Every mail is valid, and each item stays on its line. The seeds in testdata are hostile.
func FuzzReceiptMail(f *testing.F) {
	f.Add("jane@example.com", "mug", "Mug, blue", int64(2), int64(1999))
	f.Add("jane@example.com, eve@example.com", "mug", "Mug, blue", int64(2), int64(1999))
	f.Fuzz(func(t *testing.T, email, sku, description string, quantity, amount int64) {
		o := testOrder()
		o.Email = email
		o.Items[0] = Item{SKU: sku, Description: description, Quantity: quantity, UnitAmount: amount}
		message, err := newMessage(testSender, o)
		if err != nil {
			require.EqualError(t, err, "permanent failure: not a plain e-mail address") // it is logged
			require.ErrorIs(t, err, jobs.ErrPermanent)
			return
		}
		parsed := parseMail(t, writeMail(t, message))
		to, err := netmail.ParseAddress(parsed.Header.Get("To"))
		require.NoError(t, err)
		require.Equal(t, email, to.Address)
		require.Equal(t, 1, strings.Count(parsed.Text, "\nTotal: "))
		require.Equal(t, 13, strings.Count(parsed.Text, "\n"))
	})
}

// NewTestMessage returns a receipt with this description of its first item.
func NewTestMessage(t testing.TB, description string) *mail.Msg {
	t.Helper()
	o := testOrder()
	o.Items[0].Description = description
	message, err := newMessage(testSender, o)
	require.NoError(t, err)
	return message
}

var ParseMail = parseMail

func (s *SMTP) Trust(roots *x509.CertPool) { s.tls.RootCAs = roots }
