package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"
)

const pageSize = 100

// List returns a page of the PaymentIntents created since a time, newest first. next is the after of
// the next page, and "" on the last one. An error with [UnreadableIDs] comes with the other objects of the
// page, and next.
func (c *Client) List(ctx context.Context, since time.Time, after string) (intents []Intent, next string, err error) {
	call := call{name: "list", method: http.MethodGet, path: intentsPath}
	return page(ctx, c, call, after, decodeIntent, func(params stripe.ListParams) any {
		return &stripe.PaymentIntentListParams{ListParams: params, CreatedRange: from(since)}
	})
}

// Search returns the ids of the intents with this value in their metadata. Stripe's index lags by a
// minute, or by an hour during an outage. If the account has no search, the error is [NotOffered].
func (c *Client) Search(ctx context.Context, name, value string) (ids []string, err error) {
	call := call{name: "search", optional: true, method: http.MethodGet, path: intentsPath + "/search"}
	found, next, err := page(ctx, c, call, "", decodeID, func(params stripe.ListParams) any {
		query := "metadata['" + name + "']:'" + value + "'"
		return &stripe.PaymentIntentSearchParams{SearchParams: stripe.SearchParams{Limit: params.Limit, Query: query}}
	})
	if next != "" { // no value has a hundred intents
		return nil, &Error{cause: fmt.Errorf("%w: several pages", ErrUnreadable)}
	}
	for _, intent := range found {
		ids = append(ids, string(intent))
	}
	return ids, err
}

func decodeID(text []byte, _ http.Header) (id reference, err error) {
	if json.Unmarshal(text, &id) != nil || id == "" {
		err = fmt.Errorf("%w: an intent without an id", ErrUnreadable)
	}
	return id, err
}

// ListRefunds returns all refunds of an intent. An error with [UnreadableIDs] comes with the others.
func (c *Client) ListRefunds(ctx context.Context, intentID string) ([]Refund, error) {
	call := call{name: "list_refunds", intentID: intentID, method: http.MethodGet, path: refundsPath}
	return allPages(ctx, c, call, decodeRefund, func(params stripe.ListParams) any {
		return &stripe.RefundListParams{ListParams: params, PaymentIntent: &intentID}
	})
}

// ListAllRefunds is [Client.List] for refunds.
func (c *Client) ListAllRefunds(ctx context.Context, since time.Time, after string) (refunds []Refund, next string, err error) {
	call := call{name: "list_all_refunds", method: http.MethodGet, path: refundsPath}
	return page(ctx, c, call, after, decodeRefund, func(params stripe.ListParams) any {
		return &stripe.RefundListParams{ListParams: params, CreatedRange: from(since)}
	})
}

// changeTypes are the types of events about what changes after a payment. Those of refunds of charges
// begin with refund. since version 2024-10-28 of Stripe's API, and with charge. before.
var changeTypes = []string{
	"charge.refunded", "charge.refund.updated", "refund.created", "refund.updated", "refund.failed",
	"charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed",
	"charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated",
}

// ListEvents is [Client.List] for the events of the last 30 days for which [ProviderEvent.IsChange] holds. An
// event that cannot be decoded has only its id. at is the time of the response by Stripe's clock.
func (c *Client) ListEvents(ctx context.Context, since time.Time, after string) (events []ProviderEvent, next string, at time.Time, err error) {
	listed := func(text []byte, _ http.Header) (ProviderEvent, error) {
		event, _ := decodeEvent(text)
		if event.ID == "" {
			return event, fmt.Errorf("%w: an event without an id", ErrUnreadable)
		}
		return event, nil
	}
	call := call{name: "list_events", method: http.MethodGet, path: "/v1/events", date: &at}
	events, next, err = page(ctx, c, call, after, listed, func(params stripe.ListParams) any {
		return &stripe.EventListParams{
			ListParams: params, CreatedRange: from(since), Types: stripe.StringSlice(changeTypes),
		}
	})
	return events, next, at, err
}

// object has an id, and an intent's id if it states one.
type object interface{ ids() (id, intent string) }

func (i Intent) ids() (id, intent string)        { return i.ID, i.ID }
func (r Refund) ids() (id, intent string)        { return r.ID, r.IntentID }
func (d Dispute) ids() (id, intent string)       { return d.ID, d.IntentID }
func (e ProviderEvent) ids() (id, intent string) { return e.ID, e.IntentID }
func (r reference) ids() (id, intent string)     { return string(r), "" }

// decoder decodes an object of a page, or that of a response with this header.
type decoder[T any] func(text []byte, header http.Header) (T, error)

// allPages returns the objects of all pages.
func allPages[T object](ctx context.Context, c *Client, call call, decode decoder[T], filter func(stripe.ListParams) any) (objects []T, err error) {
	var unread []string
	for after := ""; ; {
		some, next, err := page(ctx, c, call, after, decode, filter)
		ids := UnreadableIDs(err)
		if err != nil && ids == nil {
			return nil, err
		}
		objects, unread = append(objects, some...), append(unread, ids...)
		if after = next; after == "" {
			return objects, unreadObjects(unread)
		}
	}
}

// page returns a page, and the error of its objects that cannot be read.
func page[T object](ctx context.Context, c *Client, call call, after string, decode decoder[T], filter func(stripe.ListParams) any) (objects []T, next string, err error) {
	var unread []string
	call.params = filter(stripe.ListParams{Limit: stripe.Int64(pageSize), StartingAfter: optional(after)})
	err = c.run(ctx, call, func(text []byte, header http.Header) error {
		listed, hasMore, err := decodeList(text)
		if err != nil {
			return err
		}
		objects, unread, next = nil, nil, ""
		for _, text := range listed {
			object, err := decode(text, nil)
			id, intent := object.ids()
			switch ids := UnreadableIDs(err); {
			case ids != nil:
				unread, next = append(unread, ids...), ids[0]
			case err != nil:
				return err
			case call.intentID != "" && call.intentID != intent:
				return ErrMismatch // the list proves nothing about this intent
			default:
				objects, next = append(objects, object), id
			}
		}
		switch {
		case !hasMore:
			next = ""
		case next == "" || next == after:
			return fmt.Errorf("%w: an endless list", ErrUnreadable)
		}
		if call.date == nil {
			return nil
		}
		if *call.date, err = http.ParseTime(header.Get("Date")); err != nil {
			return fmt.Errorf("%w: no Date", ErrUnreadable)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return objects, next, unreadObjects(unread)
}

// unreadObjects returns an error that a caller who does not look at its ids takes for that of the whole
// call, because an object that cannot be read proves no absence.
func unreadObjects(ids []string) error {
	if ids == nil {
		return nil
	}
	return &Error{NeedsOperator: true, cause: fmt.Errorf("%w: %w", ErrUnreadable, unreadable(ids))}
}

func from(since time.Time) *stripe.RangeQueryParams {
	return &stripe.RangeQueryParams{GreaterThanOrEqual: since.Unix()}
}
