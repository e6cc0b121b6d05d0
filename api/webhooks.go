package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// maxEvent is the size of the largest event, in bytes. A payment's has some
// three KiB; the rest is room for what it may grow by.
const maxEvent = 256 << 10

const (
	// maxWebhooks bounds the verified events that are handled at once. Each may
	// resume an order. The provider delivers a rejected event again.
	maxWebhooks = 100

	// maxWebhookBodies bounds the bodies that are read at once, before they are
	// verified.
	maxWebhookBodies = 100
)

// webhooksAPI holds the handler of /v1/webhooks.
type webhooksAPI struct {
	service *orders.Service
	bodies  *bodyReads
	running chan struct{} // has an element for each event that is handled
}

func newWebhooks(service *orders.Service) webhooksAPI {
	return webhooksAPI{service, &bodyReads{limit: maxWebhookBodies}, make(chan struct{}, maxWebhooks)}
}

// stripe is POST /v1/webhooks/stripe. Its client is the payment provider, which
// delivers an event again, over days, until it is answered with success. Without
// a valid signature a request takes none of the slots of events (R25).
func (a webhooksAPI) stripe(w http.ResponseWriter, r *http.Request) error {
	payload, err := a.bodies.read(w, r, maxEvent)
	if err != nil {
		return err
	}
	verified, err := a.service.VerifyEvent(payload, r.Header.Get("Stripe-Signature"))
	if err != nil {
		return err
	}
	event, err := a.handle(r.Context(), verified)
	logAttrs(r.Context()).event(event, err)
	if errors.Is(err, idempotency.ErrShareTaken) {
		return idempotency.ErrOverloaded // whoever delivers is not that account
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]bool{"received": true})
}

// handle handles an event, unless too many are handled already.
func (a webhooksAPI) handle(ctx context.Context, verified orders.VerifiedEvent) (orders.Event, error) {
	select {
	case a.running <- struct{}{}:
	default:
		return orders.Event{ID: verified.ID, Type: verified.Type}, idempotency.ErrOverloaded
	}
	defer func() { <-a.running }()
	return a.service.HandleEvent(ctx, verified)
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
		l.became("followed")
		return
	case err == nil && event.Result.Response.Status == 0:
		l.became("ignored")
		return
	}
	l.result(event.Result, err)
}
