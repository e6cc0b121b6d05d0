package payments

import (
	"context"
	"fmt"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// pageSize is the most Stripe gives.
const pageSize = 100

// List visits every PaymentIntent created between since and until, by Stripe's
// clock and both included to the second, newest first, until visit says there
// is no need for more. A zero time leaves that side open. Only a nil error
// means that the list was complete (or that visit ended it).
//
// It walks the list endpoint. The search endpoint lags behind by up to an hour
// and so can never show that an intent is not there.
func (c *Client) List(ctx context.Context, since, until time.Time, visit func(Intent) (more bool)) error {
	after := ""
	for {
		page, hasMore, err := c.page(ctx, since, until, after)
		if err != nil {
			return err
		}
		for _, intent := range page {
			if !visit(intent) {
				return nil
			}
		}
		if !hasMore {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// page reads the one page that follows the given id; it has Timeout for itself.
// One page at a time, because stripe-go's iterator keeps one context for all of
// them and panics on an empty page that promises more.
func (c *Client) page(ctx context.Context, since, until time.Time, after string) ([]Intent, bool, error) {
	var intents []Intent
	var hasMore bool
	err := c.run(ctx, call{name: "list"}, func(ctx context.Context) error {
		it := c.api.List(&stripe.PaymentIntentListParams{
			ListParams: stripe.ListParams{
				Context:       ctx,
				Single:        true,
				Limit:         stripe.Int64(pageSize),
				StartingAfter: optional(after),
			},
			CreatedRange: createdRange(since, until),
		})
		if err := it.Err(); err != nil {
			return err
		}
		list := it.PaymentIntentList()
		if list.Data == nil { // an answer without "data" is no empty list
			return fmt.Errorf("%w: not a list", ErrUnreadable)
		}
		intents = make([]Intent, len(list.Data))
		for i, pi := range list.Data {
			var err error
			if intents[i], err = newIntent(pi); err != nil {
				return err
			}
		}
		hasMore = list.HasMore
		if hasMore && (len(intents) == 0 || intents[len(intents)-1].ID == after) {
			return fmt.Errorf("%w: a list without an end", ErrUnreadable)
		}
		return nil
	})
	return intents, hasMore, err
}

func createdRange(since, until time.Time) *stripe.RangeQueryParams {
	r := &stripe.RangeQueryParams{}
	if !since.IsZero() {
		r.GreaterThanOrEqual = since.Unix()
	}
	if !until.IsZero() {
		r.LesserThanOrEqual = until.Unix()
	}
	return r
}
