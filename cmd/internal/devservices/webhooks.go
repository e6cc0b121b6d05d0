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
		default: // the completer resumes the key
		}
	}
}

// settleAfter is how long a refund is pending at the fake.
const settleAfter = 2 * time.Second

// DeliverEvents sends the fake's events to url until ctx ends: only those of what is decided
// outside of a request of the API, which are a customer's action and a pending refund.
func (d *Services) DeliverEvents(ctx context.Context, url string, logger *slog.Logger) {
	if d.webhookSecret == "" {
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
			for _, refund := range d.Stripe.Refunds() {
				if refund.Status == "pending" && time.Since(time.Unix(refund.Created, 0)) > settleAfter && d.Stripe.Settle(refund.ID, true) == nil {
					d.deliver(ctx, url, "refund.updated", refund.ID, logger)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

func (d *Services) deliver(ctx context.Context, url, eventType, id string, logger *slog.Logger) {
	client := http.Client{Timeout: 30 * time.Second}
	status := 0
	for range 5 {
		payload, signature, err := d.Stripe.Event(string(d.webhookSecret), eventType, id)
		if err != nil {
			return // a customer of an intent that does not exist
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(payload))
		if err != nil {
			return
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Stripe-Signature", signature)
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			if status = response.StatusCode; status == http.StatusOK {
				return
			}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	logger.WarnContext(ctx, "the fake Stripe could not deliver a webhook", "event_type", eventType, "status", status)
}
