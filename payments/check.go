package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/stripe/stripe-go/v79"
	"golang.org/x/sync/errgroup"
)

// Check lists one intent and one refund, to try the secret key. rejected means that Stripe refused
// the key, or its permission to read one of them, so that it can never work. Whether the key may
// also write shows only in use.
func (c *Client) Check(ctx context.Context) (rejected bool, err error) {
	reads, ctx := errgroup.WithContext(ctx)
	read := func(what string, send func(stripe.ListParams) error) {
		reads.Go(func() error {
			err := c.run(ctx, call{name: "check"}, func(ctx context.Context) error {
				return send(stripe.ListParams{Context: ctx, Single: true, Limit: stripe.Int64(1)})
			})
			if err != nil {
				return fmt.Errorf("read %s: %w", what, err)
			}
			return nil
		})
	}
	read("PaymentIntents", func(params stripe.ListParams) error {
		return c.intents.List(&stripe.PaymentIntentListParams{ListParams: params}).Err()
	})
	read("Refunds", func(params stripe.ListParams) error {
		return c.refunds.List(&stripe.RefundListParams{ListParams: params}).Err()
	})
	err = reads.Wait()
	failed, ok := errors.AsType[*Error](err)
	fromStripe := ok && failed.Type != "" // not from a proxy
	return fromStripe && (failed.HTTPStatus == http.StatusUnauthorized || failed.HTTPStatus == http.StatusForbidden), err
}
