package orders_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	. "example.com/orders-api/orders/orderstest"
)

// Derived ids must never change: a retry after an update would be another payment (R5).
const (
	frozenAccount = "6f1d2c3b-4a59-4687-9b0a-1c2d3e4f5a6b"
	frozenKeyID   = "2f25d67b-20b8-8187-95ed-8befa242e93c"
	frozenOrderID = "adb0afab-1569-8080-9b60-f8e05d29e59a"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Account: uuid.MustParse(frozenAccount)})
	result, err := f.CreateOrder(Visa)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"Content-Type": "application/json", "Location": "/v1/orders/" + frozenOrderID}, result.Response.Headers)
	require.Equal(t, idempotency.Started, result.From)
	require.Equal(t, idempotency.Finished, result.To)

	t.Run("requests to the provider", func(t *testing.T) {
		o := f.WithKey(t, f.Key).GetOrder()
		requests := f.Stripe.Requests()
		require.Len(t, requests, 2)
		created, confirmed := requests[0], requests[1]

		require.Equal(t, CreateIntent, created.Endpoint)
		require.Equal(t, "orders-api-"+frozenKeyID, created.Key)
		form, err := url.ParseQuery(string(created.Body))
		require.NoError(t, err)
		require.Equal(t, url.Values{
			"amount":                             {"4300"},
			"automatic_payment_methods[enabled]": {"true"},
			"automatic_payment_methods[allow_redirects]": {"never"},
			"currency":                     {"usd"},
			"description":                  {"Order " + frozenOrderID},
			"metadata[account_id]":         {frozenAccount},
			"metadata[idempotency_key_id]": {frozenKeyID},
			"metadata[order_id]":           {frozenOrderID},
			"payment_method":               {"pm_card_visa"},
		}, form)

		require.Equal(t, Confirm, confirmed.Endpoint)
		require.Equal(t, "/v1/payment_intents/"+*o.PaymentIntentID+"/confirm", confirmed.Path)
		require.Equal(t, "orders-api-"+frozenKeyID+"-confirm", confirmed.Key)
		require.Equal(t, "use_stripe_sdk=true", string(confirmed.Body))
	})

	t.Run("one transaction for the payment, the receipt, the audit record and the response", func(t *testing.T) {
		ids := f.Texts(`
SELECT xmin::text FROM orders WHERE status = 'paid'
UNION ALL
SELECT xmin::text FROM staged_jobs WHERE kind = 'receipt' AND args = jsonb_build_object('order_id', $1::text)
UNION ALL
SELECT xmin::text FROM audit_records WHERE action = 'order.paid'
UNION ALL
SELECT xmin::text FROM idempotency_keys WHERE recovery_point = 'finished'`, frozenOrderID)
		require.Len(t, ids, 4)
		require.Equal(t, []string{ids[0], ids[0], ids[0], ids[0]}, ids)
	})
	CheckInvariants(t, f)
}

func TestCreate_unusualCharacters(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	req := OrderRequest(t, f.Account, f.Key, Visa)
	var err error
	req.Params, err = idempotency.Canonicalize([]byte(`{
		"email":"o'hara+tag@example.com","currency":"eur","payment_method":"pm_card_visa",
		"items":[{"sku":"<b>&\u2028'; --","description":"` + strings.Repeat("𝄞", 500) + `","quantity":1,"unit_amount":99999999}],
		"metadata":{"\u0000":"\u0000","~/":"\ud83d\ude00\t\r\n\"\\","e\u0301":"` + strings.Repeat("é", 500) + `"}}`))
	require.NoError(t, err)

	result, err := f.Send(req)
	require.Equal(t, "201", Outcome(result, err))
	read, err := httpjson.EncodeJSON(f.GetOrder())
	require.NoError(t, err)
	require.Equal(t, string(read), string(result.Response.Body))
	require.Equal(t, map[string]string{
		"\x00":    "\x00",
		"~/":      "😀\t\r\n\"\\",
		"e\u0301": strings.Repeat("é", 500),
	}, f.GetOrder().Metadata)
	CheckInvariants(t, f)
}
