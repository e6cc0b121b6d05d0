package payments

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

const pageSize = 100

// List returns a page of the PaymentIntents created between since and until, newest
// first: the page after the given intent id, or the first if it is "". next is the id
// for the next page, "" after the last. The bounds are inclusive whole seconds of
// Stripe's clock; a zero until means unbounded. Unlike [Client.Search], it has every intent
// at once.
func (c *Client) List(ctx context.Context, since, until time.Time, after string) (intents []Intent, next string, err error) {
	return page(ctx, c, call{name: "list"}, after, newIntent, func(params stripe.ListParams) ([]*stripe.PaymentIntent, bool, error) {
		it := c.intents.List(&stripe.PaymentIntentListParams{ListParams: params, CreatedRange: createdRange(since, until)})
		return it.PaymentIntentList().Data, it.PaymentIntentList().HasMore, it.Err()
	})
}

// Search returns the ids of the intents that have the order's id in their metadata. Its
// index lags: normally by a minute, during an outage by up to an hour. So it cannot prove
// that a newer intent is absent, and an intent's state must be read with [Client.Get].
//
// Stripe does not offer it to every account, and other servers do not have it: the error
// is NotOffered, and [Client.List] finds the intents.
func (c *Client) Search(ctx context.Context, orderID string) (ids []string, err error) {
	search := call{name: "search", optional: true}
	if strings.ContainsAny(orderID, `'\`) {
		search.invalid = invalidCall("an order id with a quotation mark or a backslash")
	}
	err = c.run(ctx, search, func(ctx context.Context) error {
		it := c.intents.Search(&stripe.PaymentIntentSearchParams{SearchParams: stripe.SearchParams{
			Context: ctx,
			Single:  true,
			Limit:   stripe.Int64(pageSize),
			Query:   "metadata['order_id']:'" + orderID + "'",
		}})
		page := it.PaymentIntentSearchResult()
		switch {
		case it.Err() != nil:
			return it.Err()
		case page.Data == nil || page.HasMore: // no order has a hundred intents
			return fmt.Errorf("%w: not one page of results", ErrUnreadable)
		}
		ids = make([]string, len(page.Data))
		for i, object := range page.Data {
			intent, err := newIntent(object)
			if err != nil {
				return err
			}
			ids[i] = intent.ID
		}
		return nil
	})
	return ids, err
}

// ListRefunds returns all refunds of an intent.
func (c *Client) ListRefunds(ctx context.Context, intentID string) (refunds []Refund, err error) {
	list := call{name: "list refunds", intentID: intentID, invalid: checkID(intentID, "pi_")}
	ofIntent := func(re *stripe.Refund) (Refund, error) {
		r, err := newRefund(re)
		if err == nil && r.IntentID != intentID {
			return Refund{}, ErrMismatch // a list of other refunds proves nothing about this intent's
		}
		return r, err
	}
	for after := ""; ; {
		filter := stripe.RefundListParams{PaymentIntent: stripe.String(intentID)}
		objects, next, err := page(ctx, c, list, after, ofIntent, c.sendRefundList(filter))
		if err != nil {
			return nil, err
		}
		refunds = append(refunds, objects...)
		if after = next; after == "" {
			return refunds, nil
		}
	}
}

// ListAllRefunds returns a page of the refunds created between since and until, like
// [Client.List].
func (c *Client) ListAllRefunds(ctx context.Context, since, until time.Time, after string) (refunds []Refund, next string, err error) {
	filter := stripe.RefundListParams{CreatedRange: createdRange(since, until)}
	return page(ctx, c, call{name: "list all refunds"}, after, newRefund, c.sendRefundList(filter))
}

func (c *Client) sendRefundList(filter stripe.RefundListParams) func(stripe.ListParams) ([]*stripe.Refund, bool, error) {
	return func(params stripe.ListParams) ([]*stripe.Refund, bool, error) {
		filter.ListParams = params
		it := c.refunds.List(&filter)
		return it.RefundList().Data, it.RefundList().HasMore, it.Err()
	}
}

// object is a PaymentIntent or a refund.
type object interface{ id() string }

func (i Intent) id() string { return i.ID }
func (r Refund) id() string { return r.ID }

func hasID[T object](id string) func(T) bool {
	return func(o T) bool { return o.id() == id }
}

// page fetches the page after the given id within its own Timeout. stripe-go's iterator
// has one context for all pages, and panics on an empty page with has_more.
func page[S any, T object](
	ctx context.Context, c *Client, call call, after string,
	convert func(S) (T, error), send func(stripe.ListParams) (data []S, hasMore bool, err error),
) (objects []T, next string, err error) {
	err = c.run(ctx, call, func(ctx context.Context) error {
		data, hasMore, err := send(stripe.ListParams{
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
		objects, next = make([]T, len(data)), ""
		for i, object := range data {
			if objects[i], err = convert(object); err != nil {
				return err
			}
			next = objects[i].id()
		}
		switch {
		case !hasMore:
			next = ""
		case next == "" || next == after:
			return fmt.Errorf("%w: an endless list", ErrUnreadable)
		}
		return nil
	})
	return objects, next, err
}

func createdRange(since, until time.Time) *stripe.RangeQueryParams {
	r := &stripe.RangeQueryParams{GreaterThanOrEqual: since.Unix()}
	if !until.IsZero() {
		r.LesserThanOrEqual = until.Unix()
	}
	return r
}
