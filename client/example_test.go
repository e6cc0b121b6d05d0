package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/orders-api/client"
)

// A purchase: the key is stored before the first send, and every ending has its
// own answer.
func Example() {
	api := httptest.NewServer(created())
	defer api.Close()
	orders, err := client.New(client.Config{BaseURL: api.URL, APIKey: "…"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()

	purchase := struct {
		Key    client.Key
		Params client.OrderParams
	}{client.NewKey(), tea()}
	// Here the purchase is stored, key and all. After a crash it is read again,
	// and what follows is done again.

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	order, err := orders.CreateOrder(ctx, purchase.Key, purchase.Params)
	var (
		problem *client.Problem
		unknown *client.OutcomeUnknownError
	)
	switch {
	case err == nil:
		fmt.Println("sold, order", order.ID)
	case errors.As(err, &problem) && problem.Retry == client.RetryCorrected:
		fmt.Println("to be corrected, and sent with the same key:", problem.Detail)
	case errors.As(err, &problem):
		fmt.Println("not sold, for good:", problem.Detail)
	case errors.As(err, &unknown):
		fmt.Println("nobody knows yet: keep the purchase, and do this again later")
	default:
		fmt.Println("not sent:", err)
	}
	// Output: sold, order o1
}

// What happens in between is for an observer.
func ExampleConfig_observe() {
	answers := []http.HandlerFunc{
		refused(http.StatusConflict, "idempotency-key-in-progress", "same-key", "Retry-After", "1"),
		answer(http.StatusBadGateway, "text/html", "<h1>Bad Gateway</h1>"),
		created("Idempotent-Replayed", "true"),
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := answers[0]
		answers = answers[1:]
		next(w, r)
	}))
	defer api.Close()
	orders, err := client.New(client.Config{
		BaseURL: api.URL,
		APIKey:  "…",
		Observe: func(e client.Attempt) { fmt.Println(e.Method, e.Path, "→", e.Response.Status) },
		Sleep:   func(context.Context, time.Duration) error { return nil }, // this is an example
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	_, err = orders.CreateOrder(context.Background(), client.NewKey(), tea())
	fmt.Println(err)
	// Output:
	// POST /v1/orders → 409
	// POST /v1/orders → 502
	// POST /v1/orders → 201
	// <nil>
}
