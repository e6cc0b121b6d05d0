package orders_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
)

// What is derived from these must never change: a retry that comes after an
// update, or after a failover, would be another payment (R5).
const (
	frozenAccount = "6f1d2c3b-4a59-4687-9b0a-1c2d3e4f5a6b"
	frozenKeyID   = "2f25d67b-20b8-8187-95ed-8befa242e93c"
	frozenOrderID = "adb0afab-1569-8080-9b60-f8e05d29e59a"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{account: uuid.MustParse(frozenAccount)})
	result, err := s.buy(visa)
	require.NoError(t, err)

	t.Run("the answer", func(t *testing.T) {
		o := s.with(t, s.key).order()
		require.Equal(t, http.StatusCreated, result.Response.Status)
		require.Equal(t, map[string]string{
			"Content-Type": "application/json",
			"Location":     "/v1/orders/" + frozenOrderID,
		}, result.Response.Headers)
		require.Equal(t, `{"id":"`+frozenOrderID+`","status":"paid","amount":4300,"amount_refunded":0,"currency":"usd",`+
			`"email":"ada@example.com","items":[`+
			`{"sku":"TEA-ASSAM-250","description":"Assam tea, 250 g","quantity":2,"unit_amount":1250},`+
			`{"sku":"MUG-BLUE","quantity":1,"unit_amount":1800}],`+
			`"payment_intent_id":"`+*o.PaymentIntentID+`","metadata":{"basket":"b-77"},`+
			`"created_at":"`+stamp(o.CreatedAt)+`","paid_at":"`+stamp(*o.PaidAt)+`"}`, string(result.Response.Body))
		require.False(t, o.PaidAt.Before(o.CreatedAt))
		require.False(t, result.Replayed)
		require.Equal(t, idempotency.Started, result.From)
		require.Equal(t, idempotency.Finished, result.To)
	})

	t.Run("the requests to the provider", func(t *testing.T) {
		o := s.with(t, s.key).order()
		requests := s.stripe.Requests()
		require.Len(t, requests, 2)
		create, confirm := requests[0], requests[1]

		require.Equal(t, createEndpoint, create.Endpoint)
		require.Equal(t, "orders-api-"+frozenKeyID, create.Key)
		require.Equal(t, "amount=4300"+
			"&automatic_payment_methods[allow_redirects]=never"+
			"&automatic_payment_methods[enabled]=true"+
			"&currency=usd"+
			"&description=Order "+frozenOrderID+
			"&metadata[account_id]="+frozenAccount+
			"&metadata[idempotency_key_id]="+frozenKeyID+
			"&metadata[order_id]="+frozenOrderID+
			"&payment_method=pm_card_visa", sorted(t, create.Body))

		require.Equal(t, confirmEndpoint, confirm.Endpoint)
		require.Equal(t, "/v1/payment_intents/"+*o.PaymentIntentID+"/confirm", confirm.Path)
		require.Equal(t, "orders-api-"+frozenKeyID+"-confirm", confirm.Key)
		require.Equal(t, "off_session=true", string(confirm.Body))
	})

	t.Run("the records", func(t *testing.T) {
		o := s.with(t, s.key).order()
		rows, err := s.pool.Query(t.Context(), `
SELECT action || ' ' || resource_type || ' ' || resource_id || ' ' || host(request_ip) || ' ' || data
  FROM audit_records
 ORDER BY created_at`)
		require.NoError(t, err)
		require.Equal(t, []string{
			`order.created order ` + frozenOrderID + ` 203.0.113.7 {"amount": 4300, "currency": "usd"}`,
			`order.charge_created order ` + frozenOrderID + ` 203.0.113.7 {"payment_intent_id": "` + *o.PaymentIntentID + `"}`,
			`order.paid order ` + frozenOrderID + ` 203.0.113.7 {"amount": 4300, "currency": "usd", "payment_intent_id": "` + *o.PaymentIntentID + `"}`,
		}, texts(t, rows))
	})

	t.Run("one transaction for the payment, the receipt, the record and the answer", func(t *testing.T) {
		rows, err := s.pool.Query(t.Context(), `
SELECT xmin::text FROM orders WHERE status = 'paid'
UNION ALL
SELECT xmin::text FROM staged_jobs WHERE kind = 'receipt' AND args = jsonb_build_object('order_id', $1::text)
UNION ALL
SELECT xmin::text FROM audit_records WHERE action = 'order.paid'
UNION ALL
SELECT xmin::text FROM idempotency_keys WHERE recovery_point = 'finished'`, frozenOrderID)
		require.NoError(t, err)
		ids := texts(t, rows)
		require.Len(t, ids, 4)
		require.Equal(t, []string{ids[0], ids[0], ids[0], ids[0]}, ids)
	})
	checkBooks(t, s)
}

// sorted decodes a form, so that it can be read.
func sorted(t *testing.T, body []byte) string {
	t.Helper()
	form, err := url.ParseQuery(string(body))
	require.NoError(t, err)
	text, err := url.QueryUnescape(form.Encode())
	require.NoError(t, err)
	return text
}

func TestCreate_replay(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	first, err := s.buy(visa)
	require.NoError(t, err)
	s.wire.forget()

	again, err := s.buy(visa)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.Response, again.Response)

	resumed, err := s.resume()
	require.NoError(t, err)
	require.True(t, resumed.Replayed)
	require.Equal(t, first.Response, resumed.Response)

	require.Empty(t, s.wire.said())
	checkBooks(t, s)
}

func TestCreate_keyOfAnotherRequest(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	other := request(t, s.account, s.key, "pm_card_mastercard")
	elsewhere := request(t, s.account, s.key, visa)
	elsewhere.Path = "/v1/elsewhere"

	s.stopAt(createEndpoint, visa)
	for _, req := range []orders.Request{other, elsewhere} {
		_, err := s.create(req)
		require.ErrorIs(t, err, idempotency.ErrKeyReused)
	}
	require.Equal(t, "201", say(s.buy(visa)))
	for _, req := range []orders.Request{other, elsewhere} {
		_, err := s.create(req)
		require.ErrorIs(t, err, idempotency.ErrKeyReused)
	}
	checkBooks(t, s)
}

func TestCreate_twoAccountsWithOneKey(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	other := idempotencytest.Account(t, s.pool)

	mine, err := s.buy(visa)
	require.NoError(t, err)
	theirs, err := s.create(request(t, other, s.key, visa))
	require.NoError(t, err)
	require.False(t, theirs.Replayed)
	require.NotEqual(t, mine.KeyID, theirs.KeyID)
	require.Len(t, s.stripe.Charges(), 2)

	_, err = s.service.Resume(t.Context(), other, mine.KeyID)
	require.ErrorIs(t, err, idempotency.ErrNotFound)
	checkBooks(t, s)
}

// Whatever a client may send is stored, answered and read back the same.
func TestCreate_oddCharacters(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	req := request(t, s.account, s.key, visa)
	var err error
	req.Params, err = idempotency.Canonicalize([]byte(`{
		"email":"o'hara+tag@example.com","currency":"eur","payment_method":"pm_card_visa",
		"items":[{"sku":"<b>&\u2028'; --","description":"` + strings.Repeat("𝄞", 500) + `","quantity":10000,"unit_amount":1}],
		"metadata":{"\u0000":"\u0000","~/":"\ud83d\ude00\t\r\n\"\\","e\u0301":"` + strings.Repeat("é", 500) + `"}}`))
	require.NoError(t, err)
	req.ClientIP = netip.MustParseAddr("fe80::1%eth0")

	result, err := s.create(req)
	require.Equal(t, "201", say(result, err))
	read, err := json.Marshal(s.order())
	require.NoError(t, err)
	require.Equal(t, string(read), string(result.Response.Body))
	require.Equal(t, map[string]string{
		"\x00":    "\x00",
		"~/":      "😀\t\r\n\"\\",
		"e\u0301": strings.Repeat("é", 500),
	}, s.order().Metadata)
	checkBooks(t, s)
}

func TestCreate_noClientAddress(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	req := request(t, s.account, s.key, visa)
	req.ClientIP = netip.Addr{}
	require.Equal(t, "201", say(s.create(req)))
	require.Equal(t, 3, s.count("SELECT count(*) FROM audit_records WHERE request_ip IS NULL"))
}

func TestCreate_amountsThatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	for i, test := range []struct{ currency, quantity, amount, want string }{
		{"usd", "1", "49", "422 amount_too_small"},
		{"xyz", "1", "4300", "422 payment_refused"},
		{"usd", "1", "99999999", "201"},
		{"jpy", "10000", "9999", "201"},
	} {
		req := request(t, s.account, idempotency.Key(fmt.Sprintf("an-amount-of-its-own-%d", i)), visa)
		var err error
		req.Params, err = idempotency.Canonicalize([]byte(`{"email":"ada@example.com","currency":"` + test.currency +
			`","payment_method":"pm_card_visa","items":[{"sku":"A","quantity":` + test.quantity + `,"unit_amount":` + test.amount + `}]}`))
		require.NoError(t, err)
		require.Equal(t, test.want, say(s.create(req)), "%s %s", test.amount, test.currency)
		require.Equal(t, test.want, say(s.create(req)))
	}
	checkBooks(t, s)
}

func TestCreate_notValid(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	req := request(t, s.account, s.key, visa)
	req.Params = []byte(`{"email":"ada"}`)
	_, err := s.create(req)
	var invalid *orders.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys"))
	require.Equal(t, "201", say(s.buy(visa)), "the key was not used")
	checkBooks(t, s)
}
