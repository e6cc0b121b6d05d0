package api

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/orders"
)

// maxEvent is the size of the largest event, in bytes. A payment's has some
// three KiB; the rest is room for what it may grow by.
const maxEvent = 256 << 10

// webhooksAPI holds the handler of /v1/webhooks.
type webhooksAPI struct{ service *orders.Service }

// stripe is POST /v1/webhooks/stripe. Its client is the payment provider, which
// delivers again, over days, what is not answered with success.
func (a webhooksAPI) stripe(w http.ResponseWriter, r *http.Request) error {
	payload, err := readBody(w, r, maxEvent)
	if err != nil {
		return err
	}
	event, err := a.service.HandleEvent(r.Context(), payload, r.Header.Get("Stripe-Signature"))
	logAttrs(r.Context()).event(event, err)
	if errors.Is(err, limiter.ErrRateLimited) {
		return limiter.ErrOverloaded // whoever delivers is not that account
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]bool{"received": true})
}

// event notes which event it was, unless it was refused, and what came of it.
func (l *requestLog) event(event orders.Event, err error) {
	if event.ID == "" {
		return
	}
	l.add(slog.String("event_id", event.ID), slog.String("event_type", event.Type))
	if event.KeyID != uuid.Nil {
		l.add(slog.String("key_id", event.KeyID.String()))
	}
	switch {
	case err == nil && event.RefundID != uuid.Nil:
		l.add(slog.String("refund_id", event.RefundID.String()))
		l.setOutcome("followed")
		return
	case err == nil && event.Result.Response.Status == 0:
		l.setOutcome("ignored")
		return
	}
	l.result(event.Result, err)
}
