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
	return walk(ctx, c, call{name: "list"}, func(params stripe.ListParams) ([]*stripe.PaymentIntent, bool, error) {
		it := c.api.List(&stripe.PaymentIntentListParams{ListParams: params, CreatedRange: createdRange(since, until)})
		if err := it.Err(); err != nil {
			return nil, false, err
		}
		list := it.PaymentIntentList()
		return list.Data, list.HasMore, nil
	}, newIntent, func(i Intent) string { return i.ID }, visit)
}

// ListRefunds visits every refund of an intent, newest first, as [Client.List]
// does intents.
func (c *Client) ListRefunds(ctx context.Context, intentID string, visit func(Refund) (more bool)) error {
	if err := checkID(intentID); err != nil {
		return err
	}
	list := call{name: "list refunds", intentID: intentID}
	params := stripe.RefundListParams{PaymentIntent: stripe.String(intentID)}
	return c.walkRefunds(ctx, list, params, func(re *stripe.Refund) (Refund, error) {
		r, err := newRefund(re)
		if err == nil && r.IntentID != intentID {
			return Refund{}, ErrMismatch // a list of others says nothing about ours
		}
		return r, err
	}, visit)
}

// ListAllRefunds visits every refund created between since and until, as
// [Client.List] does intents.
func (c *Client) ListAllRefunds(ctx context.Context, since, until time.Time, visit func(Refund) (more bool)) error {
	params := stripe.RefundListParams{CreatedRange: createdRange(since, until)}
	return c.walkRefunds(ctx, call{name: "list all refunds"}, params, newRefund, visit)
}

func (c *Client) walkRefunds(ctx context.Context, call call, filter stripe.RefundListParams, read func(*stripe.Refund) (Refund, error), visit func(Refund) bool) error {
	return walk(ctx, c, call, func(params stripe.ListParams) ([]*stripe.Refund, bool, error) {
		page := filter
		page.ListParams = params
		it := c.refunds.List(&page)
		if err := it.Err(); err != nil {
			return nil, false, err
		}
		list := it.RefundList()
		return list.Data, list.HasMore, nil
	}, read, func(r Refund) string { return r.ID }, visit)
}

// walk visits the objects of a list, page by page.
func walk[S, T any](
	ctx context.Context, c *Client, call call,
	send func(stripe.ListParams) (data []S, hasMore bool, err error),
	read func(S) (T, error), id func(T) string, visit func(T) bool,
) error {
	after := ""
	for {
		objects, hasMore, err := page(ctx, c, call, after, send, read, id)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if !visit(object) {
				return nil
			}
		}
		if !hasMore {
			return nil
		}
		after = id(objects[len(objects)-1])
	}
}

// page reads the one page that follows the given id; it has Timeout for itself.
// One page at a time, because stripe-go's iterator keeps one context for all of
// them and panics on an empty page that promises more.
func page[S, T any](
	ctx context.Context, c *Client, call call, after string,
	send func(stripe.ListParams) (data []S, hasMore bool, err error),
	read func(S) (T, error), id func(T) string,
) (objects []T, hasMore bool, err error) {
	err = c.run(ctx, call, func(ctx context.Context) error {
		data, more, err := send(stripe.ListParams{
			Context:       ctx,
			Single:        true,
			Limit:         stripe.Int64(pageSize),
			StartingAfter: optional(after),
		})
		if err != nil {
			return err
		}
		if data == nil { // an answer without "data" is no empty list
			return fmt.Errorf("%w: not a list", ErrUnreadable)
		}
		objects = make([]T, len(data))
		for i, sent := range data {
			if objects[i], err = read(sent); err != nil {
				return err
			}
		}
		hasMore = more
		if hasMore && (len(objects) == 0 || id(objects[len(objects)-1]) == after) {
			return fmt.Errorf("%w: a list without an end", ErrUnreadable)
		}
		return nil
	})
	return objects, hasMore, err
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
