package contract_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

// The types of package client have every member of the API's responses.
func TestClient_contract(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	read := func(path string) response { return s.send(t, http.MethodGet, path, "", "", false) }
	order := s.pay(t, newKey(), "pm_card_visa", false).location
	refundKey := newKey()
	refund := func(key, body string) response {
		return s.send(t, http.MethodPost, order+"/refunds", key, body, false)
	}
	declined := s.pay(t, newKey(), "pm_card_visa_chargeDeclinedInsufficientFunds", false)
	var problem client.Problem
	require.NoError(t, json.Unmarshal(declined.body, &problem))
	for _, test := range []struct {
		got  response
		into any
	}{
		{read(order), &client.Order{}},
		{read("/v1/orders/" + problem.OrderID), &client.Order{}},
		{read("/v1/orders"), &client.OrderPage{}},
		{refund(refundKey, `{"amount":1000,"reason":"duplicate"}`), &client.Refund{}},
		{read("/v1/idempotency-keys/" + refundKey), &client.KeyStatus{}},
		{s.pay(t, newKey(), "pm_card_threeDSecure2Required", false), &client.KeyStatus{}},
		{declined, &client.Problem{}},
		{refund(newKey(), `{"amount":9999}`), &client.Problem{}},
	} {
		decoder := json.NewDecoder(bytes.NewReader(test.got.body))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(test.into), "%s", test.got.body)
	}

	server := httptest.NewServer(s.router)
	defer server.Close()
	c, err := client.New(client.Config{BaseURL: server.URL, APIKey: s.apiKey})
	require.NoError(t, err)
	defer c.Close()
	params := client.OrderParams{
		Email: "ada@example.com", Currency: "usd", PaymentMethod: "pm_card_visa",
		Items:    []client.Item{{SKU: "tea", Description: "Assam", Quantity: 2, UnitAmount: 1250}},
		Metadata: map[string]string{"note": "a\x00b"},
	}
	created, err := c.CreateOrder(t.Context(), client.NewKey(), params)
	require.NoError(t, err)
	require.Equal(t, params.Items, created.Items)
	require.Equal(t, params.Metadata, created.Metadata)
}
