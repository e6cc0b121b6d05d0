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
	const nameKey, name, nameClock = "stripe key", "stripe", "stripe clock"
	if !c.valid("STRIPE_SECRET_KEY", "STRIPE_API_BASE") {
		const reason = "STRIPE_SECRET_KEY or STRIPE_API_BASE is invalid"
		return []Result{skipped(nameKey, reason), skipped(name, reason), skipped(nameClock, reason)}
	}
	results := []Result{c.checkKeyMode(nameKey), {}, skipped(nameClock, "there is no response from Stripe")}
	results[1] = c.withTimeout(ctx, func(ctx context.Context) Result {
		client, err := payments.New(payments.Config{
			SecretKey: string(c.Environment.SecretKey),
			BaseURL:   c.Environment.APIBase,
			Timeout:   c.Timeout,
			Transport: boot.ProviderTransport(),
			Logger:    slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return Result{Failure, name, err.Error(), "correct STRIPE_SECRET_KEY or STRIPE_API_BASE"}
		}
		defer client.Close()
		if c.restrictedKey() {
			missing, err := client.MissingPermissions(ctx)
			if err != nil {
				return c.providerFailed(name, err)
			}
			if len(missing) > 0 {
				return Result{
					Failure, name, "the restricted key lacks permissions: " + strings.Join(missing, ", "),
					"grant them at https://dashboard.stripe.com/apikeys",
				}
			}
		}
		sent := time.Now()
		response, err := client.Ping(ctx)
		if err != nil {
			return c.providerFailed(name, err)
		}
		duration := time.Since(sent)
		if response.Date.IsZero() {
			results[2] = skipped(nameClock, "the response has no Date")
		} else {
			// Date has whole seconds, and was set at some moment of the call.
			ahead := response.Date.Add(time.Second / 2).Sub(sent.Add(duration / 2))
			results[2] = compareClocks(nameClock, "Stripe's clock", ahead, duration/2+time.Second/2)
		}
		if response.APIVersion != payments.APIVersion {
			return Result{
				Warning, name, fmt.Sprintf("responds in API version %q instead of %s", response.APIVersion, payments.APIVersion),
				"check that no proxy between this machine and Stripe changes headers",
			}
		}
		return ok(name, "%s accepts the key and responds in API version %s", c.Environment.ProviderURL(), response.APIVersion)
	})
	return results
}

// checkKeyMode checks the mode and the kind of the key. A key for live mode is a
// warning, because only the operator knows whether it is intended.
func (c Checker) checkKeyMode(name string) Result {
	kind := "secret"
	if c.restrictedKey() {
		kind = "restricted"
	}
	switch c.Environment.Mode() {
	case "live":
		return Result{Warning, name, kind + " key for LIVE mode: CARDS ARE CHARGED FOR REAL", "outside production, use a test key"}
	case "test":
		return ok(name, "%s key for test mode: no real money moves", kind)
	default:
		return Result{Warning, name, kind + " key without a mode: cards may be charged for real", "use one that begins with sk_test_ or sk_live_"}
	}
}

func (c Checker) restrictedKey() bool {
	return strings.HasPrefix(string(c.Environment.SecretKey), "rk_")
}

// providerFailed returns the remedy for a failed call to the provider.
func (c Checker) providerFailed(name string, err error) Result {
	message := c.Environment.ProviderURL() + ": " + err.Error()
	status := 0
	var failure *payments.Error
	if errors.As(err, &failure) {
		status = failure.HTTPStatus
	}
	switch {
	case status == http.StatusUnauthorized:
		return Result{Failure, name, message, "the key is wrong or was rolled: get the current one at https://dashboard.stripe.com/apikeys"}
	case status == http.StatusForbidden:
		return Result{Failure, name, message, "let the key write PaymentIntents and Refunds"}
	case status == 0:
		return Result{Failure, name, message, "allow HTTPS from this machine to it, or correct STRIPE_API_BASE"}
	case errors.Is(err, payments.ErrUnreadable), status == http.StatusNotFound:
		return Result{Failure, name, message, "this is not Stripe: correct STRIPE_API_BASE, or leave it empty"}
	default:
		return Result{Failure, name, message, "try again, and see https://status.stripe.com"}
	}
}

// checkWebhook checks that there is a signing secret. Its format is part of the
// configuration.
func (c Checker) checkWebhook() Result {
	const name = "webhook"
	switch {
	case !c.valid("STRIPE_WEBHOOK_SECRET"):
		return skipped(name, "STRIPE_WEBHOOK_SECRET is invalid")
	case c.Environment.WebhookSecret == "":
		return Result{
			Warning, name, "off, because STRIPE_WEBHOOK_SECRET is not set: only the completer and reconcile see what Stripe decides later",
			"create an endpoint for snapshot events at /v1/webhooks/stripe and set its signing secret",
		}
	}
	return ok(name, "has a signing secret; to check that it belongs to the endpoint: stripe trigger payment_intent.succeeded")
}

// mailChecker is a receipts.Mailer that can be checked without sending a mail.
type mailChecker interface {
	Check(ctx context.Context) error
	String() string
}

func (c Checker) checkMail(ctx context.Context, logger *slog.Logger) Result {
	const name = "mail"
	if !c.valid("SMTP_URL", "RECEIPTS_FROM") {
		return skipped(name, "SMTP_URL or RECEIPTS_FROM is invalid")
	}
	return c.withTimeout(ctx, func(ctx context.Context) Result {
		const folderRemedy = "make the folder writable, or set SMTP_URL"
		mailer, err := c.Environment.Mailer(logger)
		if err != nil {
			return Result{Failure, name, err.Error(), folderRemedy}
		}
		checker, checkable := mailer.(mailChecker)
		if !checkable {
			return skipped(name, "this mailer cannot be checked")
		}
		err = checker.Check(ctx)
		switch isServer := c.Environment.SMTPURL != ""; {
		case err != nil && isServer:
			return Result{Failure, name, err.Error(), "start the server, grant access to this machine and user, or correct SMTP_URL"}
		case err != nil:
			return Result{Failure, name, err.Error(), folderRemedy}
		case !isServer:
			return Result{Warning, name, "receipts are written to files in " + checker.String(), "set SMTP_URL to send them"}
		}
		return ok(name, "%s accepts the login", checker)
	})
}
