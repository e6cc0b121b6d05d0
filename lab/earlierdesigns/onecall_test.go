package earlierdesigns_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
)

// oneCallShop commits the key and the order before the provider call, and derives the
// provider's key from the key. It creates and confirms the payment in one call, so it
// does not know the payment's id if the response is lost.
type oneCallShop struct {
	orders *pgxpool.Pool
	stripe paymentintent.Client

	newKeyAfter500 bool // otherwise, every attempt has the same provider key
}

// order creates an order, or continues it.
func (s oneCallShop) order(ctx context.Context, key string) error {
	if _, err := s.orders.Exec(ctx, "INSERT INTO orders (key) VALUES ($1) ON CONFLICT DO NOTHING", key); err != nil {
		return err
	}
	var attempt int
	var paid bool
	if err := s.orders.QueryRow(ctx, "SELECT attempt, paid FROM orders WHERE key = $1", key).Scan(&attempt, &paid); err != nil || paid {
		return err
	}
	failed := charge(ctx, s.stripe, fmt.Sprintf("%s-%d", key, attempt))
	if failed == nil {
		_, err := s.orders.Exec(ctx, "UPDATE orders SET paid = true WHERE key = $1", key)
		return err
	}
	var stored *stripe.Error
	if s.newKeyAfter500 && errors.As(failed, &stored) && stored.HTTPStatusCode == 500 {
		if _, err := s.orders.Exec(ctx, "UPDATE orders SET attempt = attempt + 1 WHERE key = $1", key); err != nil {
			return err
		}
	}
	return failed
}

// charge creates and confirms a payment of 25.00 in one call.
func charge(ctx context.Context, intents paymentintent.Client, providerKey string) error {
	params := &stripe.PaymentIntentParams{
		Params:             stripe.Params{Context: ctx, IdempotencyKey: stripe.String(providerKey)},
		Amount:             stripe.Int64(2500),
		Currency:           stripe.String("usd"),
		PaymentMethod:      stripe.String("pm_card_visa"),
		PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
		Confirm:            stripe.Bool(true),
	}
	_, err := intents.New(params)
	return err
}
