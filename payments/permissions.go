package payments

import (
	"context"
	"errors"
	"net/http"

	"github.com/stripe/stripe-go/v79"
)

// MissingPermissions returns the required permissions that a restricted API key does
// not have. It calls Stripe about a payment that does not exist, so it has no effect:
// the response is 403 if the permission is missing.
func (c *Client) MissingPermissions(ctx context.Context) ([]string, error) {
	const intentID, key = "pi_permission_check", "orders-api-permission-check"
	var missing []string
	for _, needed := range []struct {
		permission string
		use        func() error
	}{
		{"PaymentIntents: Read", func() error {
			_, err := c.Get(ctx, intentID)
			return err
		}},
		{"PaymentIntents: Write", func() error {
			_, err := c.Cancel(ctx, key+"-cancel", intentID)
			return err
		}},
		{"Refunds: Read", func() error {
			return c.ListRefunds(ctx, intentID, func(Refund) bool { return true })
		}},
		{"Refunds: Write", func() error {
			_, err := c.Refund(ctx, key+"-refund", RefundParams{IntentID: intentID, Amount: 1})
			return err
		}},
	} {
		err := needed.use()
		var failed *Error
		switch {
		case err == nil, errors.As(err, &failed) && failed.Code == string(stripe.ErrorCodeResourceMissing):
		case failed != nil && failed.HTTPStatus == http.StatusForbidden:
			missing = append(missing, needed.permission)
		default:
			return nil, err
		}
	}
	return missing, nil
}
