package api_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

// The types of package client have every member of the API's responses.
func TestClient_contract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := f.createPaid(t)
	refundKey := newKey()
	refund := f.createRefund(t, order, refundKey, `{"amount":1000,"reason":"duplicate"}`)
	declined := f.create(t, newKey(), orderBody(withMember("payment_method", "pm_card_visa_chargeDeclinedInsufficientFunds")))
	action := f.create(t, newKey(), orderBody(withMember("payment_method", authenticatedCard)))
	for _, test := range []struct {
		got  response
		into any
	}{
		{f.get(t, order), &client.Order{}},
		{f.get(t, "/v1/orders/"+declined.problem(t).OrderID), &client.Order{}},
		{f.get(t, "/v1/orders"), &client.OrderPage{}},
		{refund, &client.Refund{}},
		{f.getKey(t, refundKey), &client.KeyStatus{}},
		{action, &client.KeyStatus{}},
		{declined, &client.Problem{}},
		{f.get(t, "/v1/orders?limit=0"), &client.Problem{}},
		{f.createRefund(t, order, newKey(), `{"amount":9999}`), &client.Problem{}},
	} {
		decoder := json.NewDecoder(bytes.NewReader(test.got.body))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(test.into), "%s", test.got.body)
	}
	c, err := client.New(client.Config{BaseURL: f.url, APIKey: f.apiKey, Transport: f.client.Transport})
	require.NoError(t, err)
	key, params := client.NewKey(), client.OrderParams{
		Email: email, Currency: "usd", PaymentMethod: "pm_card_visa",
		Items:    []client.Item{{SKU: "tea", Description: "Assam", Quantity: 2, UnitAmount: 1250}},
		Metadata: map[string]string{"note": "a\x00b"},
	}
	created, err := c.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, params.Items, created.Items)
	require.Equal(t, params.Metadata, created.Metadata)
	again, err := c.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, created, again)
}
