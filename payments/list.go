package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/form"
)

const pageSize = 100

// List returns a page of the PaymentIntents created from since to until, newest first. A zero until
// is no bound. next is the after of the next page, and "" on the last one.
func (c *Client) List(ctx context.Context, since, until time.Time, after string) (intents []Intent, next string, err error) {
	return page(ctx, c, call{name: "list"}, after, newIntent, func(params stripe.ListParams) ([]*stripe.PaymentIntent, bool, error) {
		it := c.intents.List(&stripe.PaymentIntentListParams{ListParams: params, CreatedRange: createdRange(since, until)})
		return it.PaymentIntentList().Data, it.PaymentIntentList().HasMore, it.Err()
	})
}

// Search returns the ids of the intents with this value in their metadata. Stripe's index lags by a
// minute, or by an hour during an outage. If the account has no search, the error has NotOffered.
func (c *Client) Search(ctx context.Context, name, value string) (ids []string, err error) {
	found, _, err := page(ctx, c, call{name: "search", optional: true}, "", newIntent, func(params stripe.ListParams) ([]*stripe.PaymentIntent, bool, error) {
		it := c.intents.Search(&stripe.PaymentIntentSearchParams{SearchParams: stripe.SearchParams{
			Context: params.Context,
			Single:  true,
			Limit:   params.Limit,
			Query:   "metadata['" + name + "']:'" + value + "'",
		}})
		results := it.PaymentIntentSearchResult()
		if results.HasMore { // no value has a hundred intents
			return nil, false, fmt.Errorf("%w: several pages", ErrUnreadable)
		}
		return results.Data, false, it.Err()
	})
	for _, intent := range found {
		ids = append(ids, intent.ID)
	}
	return ids, err
}

// ListRefunds returns all refunds of an intent.
func (c *Client) ListRefunds(ctx context.Context, intentID string) ([]Refund, error) {
	ofIntent := func(re *stripe.Refund) (Refund, error) {
		r, err := newRefund(re)
		if err == nil && r.IntentID != intentID {
			return Refund{}, ErrMismatch // it proves nothing about this intent's refunds
		}
		return r, err
	}
	filter := stripe.RefundListParams{PaymentIntent: &intentID}
	return allPages(ctx, c, call{name: "list_refunds", intentID: intentID}, ofIntent, c.sendRefundList(filter))
}

// ListAllRefunds is [Client.List] for refunds.
func (c *Client) ListAllRefunds(ctx context.Context, since, until time.Time, after string) (refunds []Refund, next string, err error) {
	filter := stripe.RefundListParams{CreatedRange: createdRange(since, until)}
	return page(ctx, c, call{name: "list_all_refunds"}, after, newRefund, c.sendRefundList(filter))
}

func (c *Client) sendRefundList(filter stripe.RefundListParams) func(stripe.ListParams) ([]*stripe.Refund, bool, error) {
	return func(params stripe.ListParams) ([]*stripe.Refund, bool, error) {
		filter.ListParams = params
		it := c.refunds.List(&filter)
		return it.RefundList().Data, it.RefundList().HasMore, it.Err()
	}
}

// changeTypes are the types of events about what changes after a payment. Those of refunds of charges
// begin with refund. since version 2024-10-28 of Stripe's API, and with charge. before.
var changeTypes = []string{
	"charge.refunded", "charge.refund.updated", "refund.created", "refund.updated", "refund.failed",
	"charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed",
	"charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated",
}

// ListEvents is [Client.List] for the events of the last 30 days for which [Event.IsChange] holds. An
// event that cannot be decoded has only its id. at is the time of the response by Stripe's clock.
func (c *Client) ListEvents(ctx context.Context, since time.Time, after string) (events []Event, next string, at time.Time, err error) {
	listed := func(raw json.RawMessage) (Event, error) {
		event, _ := decodeEvent(raw)
		if event.ID == "" {
			return event, fmt.Errorf("%w: an event without an id", ErrUnreadable)
		}
		return event, nil
	}
	events, next, err = page(ctx, c, call{name: "list_events"}, after, listed, func(params stripe.ListParams) ([]json.RawMessage, bool, error) {
		values := &form.Values{}
		form.AppendTo(values, &stripe.EventListParams{
			ListParams: params, CreatedRange: createdRange(since, time.Time{}), Types: stripe.StringSlice(changeTypes),
		})
		var list struct { // stripe.Event cannot decode the events of old versions of the API
			stripe.APIResource
			stripe.ListMeta
			Data []json.RawMessage `json:"data"`
		}
		err := c.api.CallRaw(http.MethodGet, "/v1/events", c.config.SecretKey, values, params.GetParams(), &list)
		if err != nil {
			return nil, false, err
		}
		if at, err = http.ParseTime(list.LastResponse.Header.Get("Date")); err != nil {
			return nil, false, fmt.Errorf("%w: no Date", ErrUnreadable)
		}
		return list.Data, list.HasMore, nil
	})
	return events, next, at, err
}

type object interface{ id() string }

func (i Intent) id() string  { return i.ID }
func (r Refund) id() string  { return r.ID }
func (d Dispute) id() string { return d.ID }
func (e Event) id() string   { return e.ID }

func hasID[T object](id string) func(T) bool {
	return func(o T) bool { return o.id() == id }
}

// allPages returns the objects of all pages.
func allPages[S any, T object](
	ctx context.Context, c *Client, call call,
	convert func(S) (T, error), send func(stripe.ListParams) (data []S, hasMore bool, err error),
) (objects []T, err error) {
	for after := ""; ; {
		some, next, err := page(ctx, c, call, after, convert, send)
		if err != nil {
			return nil, err
		}
		objects = append(objects, some...)
		if after = next; after == "" {
			return objects, nil
		}
	}
}

// page fetches one page. stripe-go's iterator is not used: it has one context for all pages, and
// panics on an empty page.
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
		if data == nil {
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
	if err != nil {
		return nil, "", err
	}
	return objects, next, nil
}

func createdRange(since, until time.Time) *stripe.RangeQueryParams {
	r := &stripe.RangeQueryParams{GreaterThanOrEqual: since.Unix()}
	if !until.IsZero() {
		r.LesserThanOrEqual = until.Unix()
	}
	return r
}
