package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
)

// The types of package client have every member of the API's responses.
func TestClient_contract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, err := client.New(client.Config{BaseURL: f.url, APIKey: f.apiKey, Transport: f.client.Transport})
	require.NoError(t, err)
	params := client.OrderParams{
		Email: email, Currency: "usd", PaymentMethod: "pm_card_visa",
		Items:    []client.Item{{SKU: "tea", Description: "Assam", Quantity: 2, UnitAmount: 1250}},
		Metadata: map[string]string{"note": "a\x00b"},
	}
	key := client.NewKey()
	order, err := c.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, "paid", order.Status)
	require.EqualValues(t, 2500, order.Amount)
	require.Equal(t, params.Items, order.Items)
	require.Equal(t, params.Metadata, order.Metadata)
	require.NotEmpty(t, order.PaymentIntentID)
	require.NotNil(t, order.PaidAt)

	again, err := c.CreateOrder(t.Context(), key, params)
	require.NoError(t, err)
	require.Equal(t, order, again)
	read, err := c.GetOrder(t.Context(), order.ID)
	require.NoError(t, err)
	require.Equal(t, order, read)

	refundKey := client.NewKey()
	refund, err := c.CreateRefund(t.Context(), refundKey, order.ID, client.RefundParams{Amount: 1000, Reason: "duplicate"})
	require.NoError(t, err)
	require.Equal(t, []any{order.ID, int64(1000), "usd", "duplicate", "succeeded"},
		[]any{refund.OrderID, refund.Amount, refund.Currency, refund.Reason, refund.Status})
	require.NotEmpty(t, refund.ProviderRefundID)
	require.False(t, refund.CreatedAt.IsZero())
	status, err := c.GetKey(t.Context(), refundKey)
	require.NoError(t, err)
	require.Equal(t, []any{refundKey, "finished", "create_refund", http.StatusCreated, order.ID},
		[]any{status.Key, status.State, status.Operation, status.Response.Status, status.Order.ID})
	order, err = c.GetOrder(t.Context(), order.ID)
	require.NoError(t, err)
	require.Equal(t, "partially_refunded", order.Status)

	params.PaymentMethod = "pm_card_visa_chargeDeclinedInsufficientFunds"
	_, err = c.CreateOrder(t.Context(), client.NewKey(), params)
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "insufficient_funds", problem.DeclineCode)
	declined, err := c.GetOrder(t.Context(), problem.OrderID)
	require.NoError(t, err)
	require.Nil(t, declined.PaidAt)
	require.Equal(t, &client.Failure{Code: "card_declined", DeclineCode: "insufficient_funds"}, declined.Failure)

	page, err := c.ListOrders(t.Context(), 1, declined.ID)
	require.NoError(t, err)
	require.Equal(t, client.OrderPage{Data: []client.Order{order}}, page)
	_, err = c.ListOrders(t.Context(), 0, "")
	require.ErrorAs(t, err, &problem)
	require.Equal(t, "/limit", problem.Errors[0].Pointer)
	_, err = c.CreateOrder(t.Context(), key, params)
	require.ErrorAs(t, err, &problem)
	require.Equal(t, client.RetryNever, problem.Retry, "another request under a used key")
}
