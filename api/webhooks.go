package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments"
)

const maxEventBody = 256 << 10 // bytes; a payment's event has about three KiB

// WebhookPath is the route of the provider's events.
const WebhookPath = "/v1/webhooks/stripe"

// maxEventWait is for a run that holds the key of an event. With another run after it, most responses are in time for
// Stripe, which repeats an event that is not answered.
const maxEventWait = 5 * time.Second

// receiveEvent takes a permit only after the signature is verified (R25, bounded outsiders). Stripe
// repeats the request until it succeeds.
func (h *Handlers) receiveEvent(w http.ResponseWriter, r *http.Request) error {
	payload, err := readBody(w, r, maxEventBody)
	if err != nil {
		return err
	}
	event, err := h.Orders.Payments.Event(payload, r.Header.Get("Stripe-Signature"))
	if err != nil {
		return err
	}
	var result reconcile.Result
	account := payments.ParseMetadata(event.Metadata).AccountID
	err = h.inTurn(r.Context(), account, maxEventWait, func(ctx context.Context) (_ idempotency.Result, err error) {
		if result, err = h.Changes.Handle(ctx, event); err != nil {
			err = &keyedError{error: err}
		}
		return result.Run, err
	}).err
	entryOf(r.Context()).event(event, result, err)
	switch {
	case errors.Is(err, idempotency.ErrInProgress):
		return &keyedError{error: errEventBusy} // 503, because 409 would count as a rejected event
	case err != nil:
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]bool{"received": true})
}

func (l *logEntry) event(event payments.ProviderEvent, result reconcile.Result, err error) {
	l.add(slog.String("event_id", event.ID), slog.String("event_type", event.Type))
	if result.KeyID != uuid.Nil {
		l.add(slog.String("key_id", result.KeyID.String()))
	}
	switch {
	case err == nil && event.IsChange():
		l.setOutcome("recorded")
	case err == nil && result.KeyID == uuid.Nil:
		l.setOutcome("ignored")
	default:
		l.result(result.Run, cmp.Or(err, result.Unfinished))
	}
}
