package earlierdesigns

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
)

// OneCallShop commits key and order before the provider call, and derives the provider's key from
// the client's. It creates and confirms the payment in one call, so if the response is lost, it does
// not know the id of the payment.
type OneCallShop struct {
	DB     *pgxpool.Pool
	Stripe paymentintent.Client

	NewKeyAfter500 bool // if false, every attempt has the same provider key
}

// Order creates an order, or continues it.
func (s OneCallShop) Order(ctx context.Context, key string) error {
	if _, err := s.DB.Exec(ctx, "INSERT INTO one_call_design.orders (key) VALUES ($1) ON CONFLICT DO NOTHING", key); err != nil {
		return err
	}
	var attempt int
	var paid bool
	const read = "SELECT attempt, paid FROM one_call_design.orders WHERE key = $1"
	if err := s.DB.QueryRow(ctx, read, key).Scan(&attempt, &paid); err != nil || paid {
		return err
	}
	failed := Charge(ctx, s.Stripe, fmt.Sprintf("%s-%d", key, attempt))
	if failed == nil {
		_, err := s.DB.Exec(ctx, "UPDATE one_call_design.orders SET paid = true WHERE key = $1", key)
		return err
	}
	var stored *stripe.Error
	if s.NewKeyAfter500 && errors.As(failed, &stored) && stored.HTTPStatusCode == 500 {
		if _, err := s.DB.Exec(ctx, "UPDATE one_call_design.orders SET attempt = attempt + 1 WHERE key = $1", key); err != nil {
			return err
		}
	}
	return failed
}

// PaidOrders returns the number of paid orders.
func (s OneCallShop) PaidOrders(ctx context.Context) (n int, err error) {
	return n, s.DB.QueryRow(ctx, "SELECT count(*) FROM one_call_design.orders WHERE paid").Scan(&n)
}

// Charge creates and confirms a payment of 25.00 in one call.
func Charge(ctx context.Context, intents paymentintent.Client, providerKey string) error {
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
