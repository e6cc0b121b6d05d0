package devservices

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/orders-api/payments/stripetest"
)

func (d *Services) serveStripe(w http.ResponseWriter, r *http.Request) {
	d.Stripe.ServeHTTP(w, r)
	if path, ok := strings.CutPrefix(r.URL.Path, "/customer/"); ok {
		id, _, _ := strings.Cut(path, "/")
		select {
		case d.acted <- id:
		default: // the channel is full; without the event, the completer resumes the key later
		}
	}
}

// SendsEvents reports whether [Services.DeliverEvents] sends events.
func (d *Services) SendsEvents() bool { return d.webhookSecret != "" }

// settleAfter is the time until a refund at the fake is no longer pending, or fails.
const settleAfter = 2 * time.Second

// DeliverEvents sends events to url until ctx ends: one after each action of a customer, and one when
// a refund is settled. These are the changes at the provider that no response reports.
func (d *Services) DeliverEvents(ctx context.Context, url string, logger *slog.Logger) {
	if !d.SendsEvents() {
		return
	}
	tick := time.NewTicker(settleAfter / 4)
	defer tick.Stop()
	for {
		select {
		case id := <-d.acted:
			event := "payment_intent.payment_failed"
			if slices.ContainsFunc(d.Stripe.Charges(), func(c stripetest.Charge) bool { return c.IntentID == id }) {
				event = "payment_intent.succeeded"
			}
			d.deliver(ctx, url, event, id, logger)
		case <-tick.C:
			for _, id := range d.Stripe.SettleRefunds(settleAfter) {
				d.deliver(ctx, url, "refund.updated", id, logger)
			}
		case <-ctx.Done():
			return
		}
	}
}

// deliver sends an event once and does not retry, because the completer resumes the key of a payment anyway.
func (d *Services) deliver(ctx context.Context, url, eventType, id string, logger *slog.Logger) {
	payload, signature, err := d.Stripe.Event(string(d.webhookSecret), eventType, id)
	if err != nil {
		return // the customer acted on an intent that does not exist
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(payload))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Stripe-Signature", signature)
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request) // Stripe follows no redirect either (R31, one call, one answer)
	if err == nil {
		err = response.Body.Close()
	}
	if err != nil || response.StatusCode != http.StatusOK {
		logger.WarnContext(ctx, "the fake Stripe could not deliver a webhook", "event_type", eventType, "error", err)
	}
}
