package payments

import (
	"context"
	"errors"
	"net/http"

	"github.com/stripe/stripe-go/v79"
)

// MissingPermissions returns the required permissions that the API key does not have. Its
// calls have no effect, because their payment does not exist.
func (c *Client) MissingPermissions(ctx context.Context) (missing []string, err error) {
	const intentID, key = "pi_permission_check", "orders-api-permission-check"
	_, getErr := c.Get(ctx, intentID)
	_, cancelErr := c.Cancel(ctx, key+"-cancel", intentID)
	_, listErr := c.ListRefunds(ctx, intentID)
	_, refundErr := c.Refund(ctx, key+"-refund", RefundParams{IntentID: intentID, Amount: 1})
	for _, tried := range []struct {
		permission string
		err        error
	}{
		{"PaymentIntents: Read", getErr},
		{"PaymentIntents: Write", cancelErr},
		{"Refunds: Read", listErr},
		{"Refunds: Write", refundErr},
	} {
		failed, _ := errors.AsType[*Error](tried.err)
		switch {
		case tried.err == nil, failed != nil && failed.Code == string(stripe.ErrorCodeResourceMissing):
		case failed != nil && failed.HTTPStatus == http.StatusForbidden:
			missing = append(missing, tried.permission)
		default:
			return nil, tried.err
		}
	}
	return missing, nil
}
