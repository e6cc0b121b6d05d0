package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"example.com/orders-api/client"
)

// The key is stored before the first send, and each outcome is handled.
func Example() {
	api := httptest.NewServer(respondCreated())
	defer api.Close()
	orders, err := client.New(client.Config{BaseURL: api.URL, APIKey: "sk_..."})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()

	purchase := struct {
		Key    client.Key
		Params client.OrderParams
	}{client.NewKey(), orderParams()}
	// Store the purchase here. After a crash, read it and continue here.

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	order, err := orders.CreateOrder(ctx, purchase.Key, purchase.Params)
	var (
		action  *client.ActionRequiredError
		problem *client.Problem
		unknown *client.OutcomeUnknownError
	)
	switch {
	case err == nil:
		fmt.Println("paid, order", order.ID)
	case errors.As(err, &action):
		fmt.Println("approval required:", action.Action.PaymentIntentID)
	case errors.As(err, &problem) && problem.Retry == client.RetryCorrected:
		fmt.Println("correct the request, and send it with the same key:", problem.Detail)
	case errors.As(err, &problem):
		fmt.Println("rejected:", problem.Detail)
	case errors.As(err, &unknown):
		fmt.Println("outcome unknown: keep the purchase, and repeat this later")
	default:
		fmt.Println("not sent:", err)
	}
	// Output: paid, order o1
}
