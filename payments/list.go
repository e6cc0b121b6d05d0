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
	return c.intentList(since, until).each(ctx, c, visit)
}

// ListPage returns the page of [Client.List] after the given intent id, or the first
// page if it is "", and whether more pages follow.
func (c *Client) ListPage(ctx context.Context, since, until time.Time, after string) (intents []Intent, more bool, err error) {
	return c.intentList(since, until).page(ctx, c, after)
}

// ListRefunds calls visit for every refund of an intent, like [Client.List].
func (c *Client) ListRefunds(ctx context.Context, intentID string, visit func(Refund) (more bool)) error {
	if err := checkID(intentID, "pi_"); err != nil {
		return err
	}
	refunds := c.refundList(stripe.RefundListParams{PaymentIntent: stripe.String(intentID)})
	refunds.call = call{name: "list refunds", intentID: intentID}
	refunds.convert = func(re *stripe.Refund) (Refund, error) {
		r, err := newRefund(re)
		if err == nil && r.IntentID != intentID {
			return Refund{}, ErrMismatch // a list of other refunds proves nothing about this intent's
		}
		return r, err
	}
	return refunds.each(ctx, c, visit)
}

// ListAllRefunds calls visit for every refund created between since and until, like
// [Client.List].
func (c *Client) ListAllRefunds(ctx context.Context, since, until time.Time, visit func(Refund) (more bool)) error {
	return c.refundList(stripe.RefundListParams{CreatedRange: createdRange(since, until)}).each(ctx, c, visit)
}

// list is a list at Stripe, of S in the types of stripe-go and of T in ours.
type list[S, T any] struct {
	call    call
	send    func(stripe.ListParams) (data []S, hasMore bool, err error)
	convert func(S) (T, error)
	id      func(T) string
}

func (c *Client) intentList(since, until time.Time) list[*stripe.PaymentIntent, Intent] {
	return list[*stripe.PaymentIntent, Intent]{
		call: call{name: "list"},
		send: func(params stripe.ListParams) ([]*stripe.PaymentIntent, bool, error) {
			it := c.intents.List(&stripe.PaymentIntentListParams{ListParams: params, CreatedRange: createdRange(since, until)})
			return it.PaymentIntentList().Data, it.PaymentIntentList().HasMore, it.Err()
		},
		convert: newIntent,
		id:      func(i Intent) string { return i.ID },
	}
}

func (c *Client) refundList(filter stripe.RefundListParams) list[*stripe.Refund, Refund] {
	return list[*stripe.Refund, Refund]{
		call: call{name: "list all refunds"},
		send: func(params stripe.ListParams) ([]*stripe.Refund, bool, error) {
			page := filter
			page.ListParams = params
			it := c.refunds.List(&page)
			return it.RefundList().Data, it.RefundList().HasMore, it.Err()
		},
		convert: newRefund,
		id:      func(r Refund) string { return r.ID },
	}
}

// each calls visit for every object until it returns false.
func (l list[S, T]) each(ctx context.Context, c *Client, visit func(T) bool) error {
	after := ""
	for {
		objects, hasMore, err := l.page(ctx, c, after)
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
		after = l.id(objects[len(objects)-1])
	}
}

// page fetches the page after the given id within its own Timeout. stripe-go's iterator
// has one context for all pages, and panics on an empty page with has_more.
func (l list[S, T]) page(ctx context.Context, c *Client, after string) (objects []T, hasMore bool, err error) {
	err = c.run(ctx, l.call, func(ctx context.Context) error {
		data, more, err := l.send(stripe.ListParams{
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
			if objects[i], err = l.convert(object); err != nil {
				return err
			}
		}
		hasMore = more
		if hasMore && (len(objects) == 0 || l.id(objects[len(objects)-1]) == after) {
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
