package payments

import (
	"context"
	"fmt"

	"github.com/stripe/stripe-go/v79"
)

// APIVersion is the version of Stripe's API that the client uses.
const APIVersion = stripe.APIVersion

// Ping checks that the provider responds and accepts the API key. It lists one intent.
func (c *Client) Ping(ctx context.Context) error {
	return c.run(ctx, call{name: "ping"}, func(ctx context.Context) error {
		it := c.intents.List(&stripe.PaymentIntentListParams{
			ListParams: stripe.ListParams{Context: ctx, Single: true, Limit: stripe.Int64(1)},
		})
		if err := it.Err(); err != nil {
			return err
		}
		if it.PaymentIntentList().Data == nil {
			return fmt.Errorf("%w: not a list", ErrUnreadable)
		}
		return nil
	})
}
