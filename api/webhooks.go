package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"example.com/orders-api/internal/connlimit"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/orders"
)

// maxEventBody is the largest event in bytes. A payment's event has about three KiB.
const maxEventBody = 256 << 10

// maxWebhookBodies bounds the bodies that are read at once, before their signature
// is verified.
const maxWebhookBodies = 100

// webhookPath is the path of the provider's events, which have no Idempotency-Key.
const webhookPath = "/v1/webhooks/stripe"

type webhooksAPI struct {
	service *orders.Service
	limiter *limiter.Limiter
	bodies  *transfers
}

// stripe is POST /v1/webhooks/stripe. Stripe repeats an event until the response is a
// success. A request takes a permit only after its signature is verified (R25).
func (a webhooksAPI) stripe(w http.ResponseWriter, r *http.Request) error {
	var payload []byte
	var err error
	if a.bodies.do(w, 1, func() { payload, err = readBody(w, r, maxEventBody) }) {
		return errBodyCut // also a body that just arrived: the connection is unusable
	}
	if err != nil {
		return err
	}
	event, err := a.service.VerifyEvent(payload, r.Header.Get("Stripe-Signature"))
	if err != nil {
		return err
	}
	connlimit.Verified(r.Context())
	err = a.limiter.Do(r.Context(), event.AccountID, func(ctx context.Context) (err error) {
		if event, err = a.service.HandleEvent(ctx, event); err != nil {
			err = &keyedError{error: err}
		}
		return err
	})
	stateOf(r.Context()).event(event, err)
	if errors.Is(err, limiter.ErrRateLimited) {
		return limiter.ErrOverloaded // the provider is not that account
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]bool{"received": true})
}

func (l *requestState) event(event orders.Event, err error) {
	l.add(slog.String("event_id", event.ID), slog.String("event_type", event.Type))
	if event.KeyID != uuid.Nil {
		l.add(slog.String("key_id", event.KeyID.String()))
	}
	switch {
	case err == nil && event.RefundID != uuid.Nil:
		l.add(slog.String("refund_id", event.RefundID.String()))
		l.setOutcome("refund_synced")
	case err == nil && event.Result.Response.Status == 0:
		l.setOutcome("ignored")
	default:
		l.result(event.Result, err)
	}
}
