package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
)

// ordersAPI serves orders and refunds.
type ordersAPI struct {
	accountAPI
	orders *orders.Service
}

// routes adds the routes of orders to those below /v1. Those of plain have no query.
func (a ordersAPI) routes(r, plain chi.Router) {
	r.Method(http.MethodPost, "/orders", a.create(a.orders.Create))
	r.Method(http.MethodPost, "/orders/{id}/refunds", handlerFunc(a.createRefund))
	r.Method(http.MethodGet, "/orders", a.read(a.listOrders))
	plain.Method(http.MethodGet, "/orders/{id}", a.read(get(a.orders.Get)))
	r.Method(http.MethodGet, "/orders/{id}/refunds", a.read(a.listRefunds))
	plain.Method(http.MethodGet, "/orders/{id}/refunds/{refund_id}", a.read(a.getRefund))
}

func (a ordersAPI) createRefund(w http.ResponseWriter, r *http.Request) error {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return a.serve(w, r, func(ctx context.Context, req operations.Request) (idempotency.Result, error) {
		return a.orders.Refund(ctx, order, req)
	})
}

func (a ordersAPI) getRefund(r *http.Request) ([]byte, error) {
	return encode(a.orders.GetRefund(r.Context(), accountID(r.Context()), pathID(r, "id"), pathID(r, "refund_id")))
}

func (a ordersAPI) listOrders(r *http.Request) ([]byte, error) {
	page, err := parsePage(r.URL.RawQuery, "an order", "reference")
	if err != nil {
		return nil, err
	}
	if page.query.Has("reference") && !orders.ValidReference(page.query.Get("reference")) {
		return nil, invalidQuery("/reference", operations.CodeInvalidFormat, "must be 1 to 64 printable ASCII characters")
	}
	body, err := encodePage(page.limit, a.orders.List(r.Context(), accountID(r.Context()), page.limit+1, page.after, page.query.Get("reference")))
	if errors.Is(err, operations.ErrNotFound) {
		err = invalidQuery("/after", operations.CodeNotFound, "must be the id of an order of this account")
	}
	return body, err
}

func (a ordersAPI) listRefunds(r *http.Request) ([]byte, error) {
	order, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	page, err := parsePage(r.URL.RawQuery, "a refund")
	if err != nil {
		return nil, err
	}
	return encodePage(page.limit, a.orders.ListRefunds(r.Context(), accountID(r.Context()), order, page.limit+1, page.after))
}

// orderProblem maps the errors of package orders.
func orderProblem(err error) (p problem, ok bool) {
	var (
		notRefundable *orders.NotRefundableError
		exceeds       *orders.ExceedsRemainingError
		exists        *orders.OrderExistsError
	)
	switch {
	case errors.As(err, &exists):
		p = problemOrderExists.detail("The order in order_id has this reference, and its payment has not failed.")
		p.OrderID = &exists.OrderID
	case errors.As(err, &notRefundable) && notRefundable.Pending():
		p = problemNotRefundable.detail("The payment of the order is in progress. Send the same request again shortly.").after(inProgressRetryAfter)
		p.Retry = retrySameKey
	case errors.As(err, &notRefundable) && notRefundable.Status == orders.StatusPaymentFailed:
		p = problemNotRefundable.detail("The payment of the order failed, so there is nothing to refund.")
	case errors.As(err, &notRefundable):
		p = problemNotRefundable.detail("The order is refunded in full. Refunds in progress count as refunded.")
	case errors.As(err, &exceeds):
		p = problemExceedsRemaining.detail("Send an amount of at most what remains, or omit it to refund all of that.")
		p.Remaining = exceeds.Remaining
	case errors.Is(err, orders.ErrEventRefused):
		p = problemMalformed.detail("The Stripe-Signature header must sign this body with the endpoint's secret, at a time within five minutes of the server's clock.")
	case errors.Is(err, orders.ErrInvalidEvent):
		p = problemMalformed.detail("The signature is valid, but the body is not an event: a JSON object with id, object, type and data, whose numbers fit in a double.")
	case errors.Is(err, orders.ErrThinEvent):
		p = problemMalformed.detail("The signature is valid, but this is a thin event: it has no data.object. Set the payload style of the endpoint to Snapshot in Stripe's dashboard.")
	case errors.Is(err, orders.ErrWebhooksOff):
		p = problemNotFound.detail("The server has no webhook secret, so the webhook is off.")
	default:
		return p, false
	}
	return p, true
}
