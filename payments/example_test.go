package payments_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"time"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// Create an intent, store its id, confirm it, and check the outcome.
func Example() {
	server := httptest.NewServer(stripetest.New(stripetest.Options{}))
	defer server.Close()
	client := payments.New(payments.Config{
		SecretKey: "sk_test_example",
		BaseURL:   server.URL,
		Timeout:   20 * time.Second,
		Logger:    slog.New(slog.DiscardHandler),
	})
	defer client.Close()

	ctx := context.Background()
	intent, err := client.Create(ctx, "order-1", payments.CreateParams{
		Amount:        2500,
		Currency:      "eur",
		PaymentMethod: "pm_card_visa_chargeDeclinedInsufficientFunds",
		Metadata:      map[string]string{"order_id": "1"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(intent.Status)

	_, err = client.Confirm(ctx, "order-1-confirm", intent.ID, false)
	var failed *payments.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Outcome, failed.DeclineCode)
		fmt.Println(failed.Message)
	}
	// Output:
	// requires_confirmation
	// declined insufficient_funds
	// Your card has insufficient funds.
}
