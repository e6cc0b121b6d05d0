package payments

import (
	"context"
	"fmt"
	"time"

	"github.com/stripe/stripe-go/v79"
)

const pageSize = 100

// List calls visit for every PaymentIntent created between since and until, newest
// first, until visit returns false. The bounds are inclusive whole seconds of Stripe's
// clock; zero means unbounded. A nil error means that visit got the whole list or ended
// it. The search endpoint lags, so it cannot prove that an intent is absent.
func (c *Client) List(ctx context.Context, since, until time.Time, visit func(Intent) (more bool)) error {
	return paginate(ctx, c, call{name: "list"}, c.listIntents(since, until), newIntent, intentID, visit)
}

// ListPage returns the page of [Client.List] after the given intent id, or the first
// page if it is "", and whether more pages follow.
func (c *Client) ListPage(ctx context.Context, since, until time.Time, after string) (intents []Intent, more bool, err error) {
	return fetchPage(ctx, c, call{name: "list"}, after, c.listIntents(since, until), newIntent, intentID)
}

func intentID(i Intent) string { return i.ID }

func (c *Client) listIntents(since, until time.Time) func(stripe.ListParams) ([]*stripe.PaymentIntent, bool, error) {
	return func(params stripe.ListParams) ([]*stripe.PaymentIntent, bool, error) {
		it := c.intents.List(&stripe.PaymentIntentListParams{ListParams: params, CreatedRange: createdRange(since, until)})
		if err := it.Err(); err != nil {
			return nil, false, err
		}
		list := it.PaymentIntentList()
		return list.Data, list.HasMore, nil
	}
}

// ListRefunds calls visit for every refund of an intent, like [Client.List].
func (c *Client) ListRefunds(ctx context.Context, intentID string, visit func(Refund) (more bool)) error {
	if err := checkID(intentID); err != nil {
		return err
	}
	list := call{name: "list refunds", intentID: intentID}
	filter := stripe.RefundListParams{PaymentIntent: stripe.String(intentID)}
	return c.paginateRefunds(ctx, list, filter, func(re *stripe.Refund) (Refund, error) {
		r, err := newRefund(re)
		if err == nil && r.IntentID != intentID {
			return Refund{}, ErrMismatch // a list of other refunds proves nothing about this intent's
		}
		return r, err
	}, visit)
}

// ListAllRefunds calls visit for every refund created between since and until, like
// [Client.List].
func (c *Client) ListAllRefunds(ctx context.Context, since, until time.Time, visit func(Refund) (more bool)) error {
	filter := stripe.RefundListParams{CreatedRange: createdRange(since, until)}
	return c.paginateRefunds(ctx, call{name: "list all refunds"}, filter, newRefund, visit)
}

func (c *Client) paginateRefunds(
	ctx context.Context, call call, filter stripe.RefundListParams,
	convert func(*stripe.Refund) (Refund, error), visit func(Refund) bool,
) error {
	send := func(params stripe.ListParams) ([]*stripe.Refund, bool, error) {
		page := filter
		page.ListParams = params
		it := c.refunds.List(&page)
		if err := it.Err(); err != nil {
			return nil, false, err
		}
		list := it.RefundList()
		return list.Data, list.HasMore, nil
	}
	return paginate(ctx, c, call, send, convert, func(r Refund) string { return r.ID }, visit)
}

func paginate[S, T any](
	ctx context.Context, c *Client, call call,
	send func(stripe.ListParams) (data []S, hasMore bool, err error),
	convert func(S) (T, error), id func(T) string, visit func(T) bool,
) error {
	after := ""
	for {
		objects, hasMore, err := fetchPage(ctx, c, call, after, send, convert, id)
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

// fetchPage fetches the page after the given id within its own Timeout. stripe-go's
// iterator has one context for all pages, and panics on an empty page with has_more.
func fetchPage[S, T any](
	ctx context.Context, c *Client, call call, after string,
	send func(stripe.ListParams) (data []S, hasMore bool, err error),
	convert func(S) (T, error), id func(T) string,
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
		if data == nil { // a response without "data" is not an empty list
			return fmt.Errorf("%w: not a list", ErrUnreadable)
		}
		objects = make([]T, len(data))
		for i, object := range data {
			if objects[i], err = convert(object); err != nil {
				return err
			}
		}
		hasMore = more
		if hasMore && (len(objects) == 0 || id(objects[len(objects)-1]) == after) {
			return fmt.Errorf("%w: an endless list", ErrUnreadable)
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
