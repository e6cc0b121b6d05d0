package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/payments"
)

// CheckProvider checks the key and its permissions, and lists one payment at Stripe.
func (c Checker) CheckProvider(ctx context.Context) []Result {
	clock := skipped("there is no response from Stripe")
	return c.run(
		ctx, []string{"STRIPE_SECRET_KEY", "STRIPE_API_BASE"},
		check{"stripe key", c.checkKeyMode},
		check{"stripe", func(ctx context.Context) (result Result) {
			result, clock = c.checkStripe(ctx, clock)
			return result
		}},
		check{"stripe clock", func(context.Context) Result { return clock }},
	)
}

func (c Checker) checkKeyMode(context.Context) Result {
	kind := "secret"
	if c.restrictedKey() {
		kind = "restricted"
	}
	switch c.Environment.Mode() {
	case "live":
		return warning(kind+" key for LIVE mode: CARDS ARE CHARGED FOR REAL", "outside production, use a test key")
	case "test":
		return ok("%s key for test mode: no real money moves", kind)
	default:
		return warning(kind+" key without a mode: cards may be charged for real", "use one that begins with sk_test_ or sk_live_")
	}
}

func (c Checker) restrictedKey() bool {
	return strings.HasPrefix(string(c.Environment.SecretKey), "rk_")
}

// checkStripe also returns the result of the clock, unchanged without a response.
func (c Checker) checkStripe(ctx context.Context, clock Result) (stripe, _ Result) {
	client, err := payments.New(payments.Config{
		SecretKey: string(c.Environment.SecretKey),
		BaseURL:   c.Environment.APIBase,
		Timeout:   c.Timeout,
		Transport: boot.ProviderTransport(),
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return failure(err.Error(), "correct STRIPE_SECRET_KEY or STRIPE_API_BASE"), clock
	}
	defer client.Close()
	if c.restrictedKey() {
		missing, err := client.MissingPermissions(ctx)
		if err != nil {
			return c.providerFailed(err), clock
		}
		if len(missing) > 0 {
			return failure("the restricted key lacks permissions: "+strings.Join(missing, ", "),
				"grant them at https://dashboard.stripe.com/apikeys"), clock
		}
	}
	sent := time.Now()
	response, err := client.Ping(ctx)
	if err != nil {
		return c.providerFailed(err), clock
	}
	if half := time.Since(sent) / 2; !response.Date.IsZero() {
		// Date has whole seconds, and was set during the call.
		ahead := response.Date.Add(time.Second / 2).Sub(sent.Add(half))
		clock = compareClocks("Stripe's clock", ahead, half+time.Second/2)
	}
	if response.APIVersion != payments.APIVersion {
		return warning(fmt.Sprintf("responds in API version %q instead of %s", response.APIVersion, payments.APIVersion),
			"check that no proxy between this machine and Stripe changes headers"), clock
	}
	return ok("%s accepts the key and responds in API version %s", c.Environment.ProviderURL(), response.APIVersion), clock
}

// providerFailed adds the remedy for a failed call.
func (c Checker) providerFailed(err error) Result {
	remedy, status := "try again, and see https://status.stripe.com", 0
	var failed *payments.Error
	if errors.As(err, &failed) {
		status = failed.HTTPStatus
	}
	switch {
	case status == http.StatusUnauthorized:
		remedy = "the key is wrong or was rolled: get the current one at https://dashboard.stripe.com/apikeys"
	case status == http.StatusForbidden:
		remedy = "let the key write PaymentIntents and Refunds"
	case status == 0:
		remedy = "allow HTTPS from this machine to it, or correct STRIPE_API_BASE"
	case errors.Is(err, payments.ErrUnreadable), status == http.StatusNotFound:
		remedy = "this is not Stripe: correct STRIPE_API_BASE, or leave it empty"
	}
	return failure(c.Environment.ProviderURL()+": "+err.Error(), remedy)
}

// checkWebhook checks that there is a signing secret; boot checks its format.
func (c Checker) checkWebhook(ctx context.Context) []Result {
	return c.run(ctx, []string{"STRIPE_WEBHOOK_SECRET"}, check{"webhook", func(context.Context) Result {
		if c.Environment.WebhookSecret == "" {
			return warning("off, because STRIPE_WEBHOOK_SECRET is not set: only the completer and reconcile see what Stripe decides later",
				"create an endpoint for snapshot events at /v1/webhooks/stripe and set its signing secret")
		}
		return ok("has a signing secret; to check that it belongs to the endpoint: stripe trigger payment_intent.succeeded")
	}})
}
