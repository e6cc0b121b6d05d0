package receipts

import (
	"net/mail"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/jobs"
)

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
		to, err := mail.ParseAddress(parsed.Header.Get("To"))
		require.NoError(t, err)
		require.Equal(t, email, to.Address)
		require.Equal(t, 1, strings.Count(parsed.Text, "\nTotal: "))
		require.Equal(t, 13, strings.Count(parsed.Text, "\n"))
	})
}
