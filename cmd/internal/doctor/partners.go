package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.com/orders-api/payments"
)

// provider looks at the key, and asks Stripe for one payment, whichever.
func (e Examination) provider(ctx context.Context, logger *slog.Logger) []Finding {
	const aboutKey, about, aboutClock = "stripe key", "stripe", "stripe clock"
	if !e.usable("STRIPE_SECRET_KEY", "STRIPE_API_BASE") {
		const because = "since STRIPE_SECRET_KEY or STRIPE_API_BASE is wrong"
		return []Finding{notLooked(aboutKey, because), notLooked(about, because), notLooked(aboutClock, because)}
	}
	findings := []Finding{e.checkKeyKind(aboutKey), {}, notLooked(aboutClock, "for Stripe did not answer")}
	findings[1] = e.bounded(ctx, func(ctx context.Context) Finding {
		client, err := payments.New(payments.Config{
			SecretKey: string(e.Environment.SecretKey),
			BaseURL:   e.Environment.APIBase,
			Timeout:   e.Limit,
			Logger:    logger,
		})
		if err != nil {
			return failed(about, err)
		}
		defer client.Close()
		asked := time.Now()
		answer, err := client.Ping(ctx)
		if err != nil {
			return e.noAnswer(about, err)
		}
		took := time.Since(asked)
		if answer.Date.IsZero() {
			findings[2] = notLooked(aboutClock, "for Stripe did not say what time it is")
		} else {
			// Its clock showed whole seconds at some moment of the call.
			ahead := answer.Date.Add(time.Second / 2).Sub(asked.Add(took / 2))
			findings[2] = judgeClock(aboutClock, "Stripe's", ahead, took/2+time.Second/2)
		}
		if answer.APIVersion != payments.APIVersion {
			return Finding{
				Warning, about, fmt.Sprintf("answers in API version %q, the program was made for %s", answer.APIVersion, payments.APIVersion),
				"see that nothing between here and Stripe changes headers",
			}
		}
		return good(about, "%s takes the key and answers in API version %s", e.who(), answer.APIVersion)
	})
	return findings
}

// who is asked.
func (e Examination) who() string {
	if e.Environment.APIBase == "" {
		return "Stripe"
	}
	return e.Environment.Provider()
}

// checkKeyKind says what the key can do. It cannot know whether that is wanted, so
// one for real money is a warning and no fault.
func (e Examination) checkKeyKind(about string) Finding {
	key := string(e.Environment.SecretKey)
	kind, remedy := "a secret", ""
	if strings.HasPrefix(key, "rk_") {
		kind, remedy = "a restricted", "see that it may write PaymentIntents and Refunds"
	}
	switch {
	case payments.IsLiveKey(key):
		if remedy != "" {
			remedy = "; " + remedy
		}
		return Finding{Warning, about, kind + " key for LIVE mode: CARDS ARE CHARGED FOR REAL", "anywhere but in production, take a test key" + remedy}
	case strings.Contains(key[:min(len(key), len("sk_test_"))], "_test_"):
		return Finding{Good, about, kind + " key for test mode: no real money moves", remedy}
	default:
		return Finding{Warning, about, kind + " key that names no mode: cards may be charged for real", "take one that begins with sk_test_ or sk_live_"}
	}
}

// noAnswer says what is wrong, by what Stripe or the network answered.
func (e Examination) noAnswer(about string, err error) Finding {
	found := e.who() + ": " + err.Error()
	status := 0
	var failure *payments.Error
	if errors.As(err, &failure) {
		status = failure.HTTPStatus
	}
	switch {
	case status == http.StatusUnauthorized:
		return Finding{Fault, about, found, "the key is wrong or was rolled: get the present one at https://dashboard.stripe.com/apikeys"}
	case status == http.StatusForbidden:
		return Finding{Fault, about, found, "let the restricted key write PaymentIntents and Refunds"}
	case status == 0:
		return Finding{Fault, about, found, "let this machine reach it by HTTPS, or correct STRIPE_API_BASE"}
	case errors.Is(err, payments.ErrUnreadable), status == http.StatusNotFound:
		return Finding{Fault, about, found, "this is not Stripe: correct STRIPE_API_BASE, or leave it empty"}
	default:
		return Finding{Fault, about, found, "try again, and see https://status.stripe.com"}
	}
}

// webhook says whether there is a secret; that it has the right shape is in the
// configuration.
func (e Examination) webhook() Finding {
	const about = "webhook"
	switch {
	case !e.usable("STRIPE_WEBHOOK_SECRET"):
		return notLooked(about, "since STRIPE_WEBHOOK_SECRET is wrong")
	case e.Environment.WebhookSecret == "":
		return Finding{
			Warning, about, "off, for STRIPE_WEBHOOK_SECRET is not set: what Stripe settles later waits for the completer and reconcile",
			"point an endpoint at /v1/webhooks/stripe and set its signing secret",
		}
	}
	return good(about, "has a signing secret; only a delivery shows whether it is the endpoint's: stripe trigger payment_intent.succeeded")
}

// checker is a receipts.Mailer that tells whether it would work.
type checker interface {
	Check(ctx context.Context) error
	String() string
}

func (e Examination) mail(ctx context.Context, logger *slog.Logger) Finding {
	const about = "mail"
	if !e.usable("SMTP_URL", "RECEIPTS_FROM") {
		return notLooked(about, "since SMTP_URL or RECEIPTS_FROM is wrong")
	}
	return e.bounded(ctx, func(ctx context.Context) Finding {
		mailer, err := e.Environment.Mailer(logger)
		if err != nil {
			return Finding{Fault, about, err.Error(), "make the folder writable, or set SMTP_URL"}
		}
		to, ok := mailer.(checker)
		if !ok {
			return notLooked(about, "for this mailer cannot tell")
		}
		err = to.Check(ctx)
		switch isServer := e.Environment.SMTPURL != ""; {
		case err != nil && isServer:
			return Finding{Fault, about, err.Error(), "start the server, let this machine and this user in, or correct SMTP_URL"}
		case err != nil:
			return Finding{Fault, about, err.Error(), "make the folder writable, or set SMTP_URL"}
		case !isServer:
			return Finding{Warning, about, "receipts become files in " + to.String(), "set SMTP_URL to have them sent"}
		}
		return good(about, "%s is there and lets us in", to)
	})
}
