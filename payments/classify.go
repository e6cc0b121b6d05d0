package payments

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/stripe/stripe-go/v79"
)

// How long to leave the provider alone, by what went wrong.
const (
	// The network is back in moments or not for long; ask soon.
	networkRetryAfter = 1 * time.Second
	// Another request holds the intent, for as long as a charge takes.
	lockRetryAfter = 1 * time.Second
	// The first use of the key is running, a gateway is restarting, or we are
	// over a limit that is counted by the second.
	busyRetryAfter = 2 * time.Second
	// Stripe sorts its own 500s out later and tells by webhook.
	saved500RetryAfter = 30 * time.Second
	// Only a person can change it; do not fill the log until then.
	misuseRetryAfter = 60 * time.Second
	// The most we believe of a Retry-After header, in seconds.
	maxRetryAfter = 3600
)

// classify says what one exchange means, nil for a usable answer. It judges by
// status and code: 401, 403, 404, 409 and 429 all have the same type.
func classify(err error, w *wire, call call) *Error {
	if err == nil && w.status == http.StatusOK {
		return nil
	}
	e := &Error{
		Outcome:    Unknown,
		HTTPStatus: w.status,
		RequestID:  printable(w.header.Get("Request-Id")),
		RetryAfter: busyRetryAfter,
	}
	if answer, ok := stripeError(err); ok {
		e.describe(answer)
		e.judge(answer, call)
	} else {
		e.fault(err, w)
	}
	// A gateway in front of Stripe may ask for patience; Stripe does not say
	// whether it does.
	if seconds, err := strconv.Atoi(w.header.Get("Retry-After")); err == nil && seconds > 0 && e.resendable() {
		e.pause = time.Duration(min(seconds, maxRetryAfter)) * time.Second
		e.RetryAfter = max(e.RetryAfter, e.pause)
	}
	return e
}

// stripeError finds an error in Stripe's own format. Anything else with a
// status of 400 or more comes from something in between, whatever it says.
func stripeError(err error) (*stripe.Error, bool) {
	var answer *stripe.Error
	if !errors.As(err, &answer) {
		return nil, false
	}
	switch answer.Type {
	case stripe.ErrorTypeAPI, stripe.ErrorTypeCard, stripe.ErrorTypeIdempotency, stripe.ErrorTypeInvalidRequest:
		return answer, true
	default:
		return nil, false
	}
}

// describe copies what identifies the error.
func (e *Error) describe(answer *stripe.Error) {
	e.Type = string(answer.Type)
	e.Code = printable(string(answer.Code))
	e.DeclineCode = printable(string(answer.DeclineCode))
	e.Param = printable(answer.Param)
	if intent, err := newIntent(answer.PaymentIntent); err == nil {
		e.Intent = &intent
	}
}

// judge sorts an error that Stripe itself answered with. What is not listed
// stays Unknown.
func (e *Error) judge(answer *stripe.Error, call call) {
	switch e.HTTPStatus {
	case http.StatusPaymentRequired:
		if answer.Type == stripe.ErrorTypeCard {
			e.decline(call)
		}
	case http.StatusBadRequest:
		switch {
		case answer.Type == stripe.ErrorTypeIdempotency:
			// The key ran with other parameters, and that run may have had an
			// effect: what became of it is not known here.
			e.NeedsOperator = true
			e.RetryAfter = misuseRetryAfter
		case answer.Code == stripe.ErrorCodePaymentIntentUnexpectedState:
			e.UnexpectedState = true
		case answer.Type == stripe.ErrorTypeInvalidRequest:
			e.Outcome = Refused
			e.RetryAfter = 0
			e.NeedsOperator = !blamesClientData(answer)
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		// Said before anything runs. No final answer for an order: once the key
		// or the URL is set right, the same request runs.
		e.Outcome = NotExecuted
		e.NeedsOperator = true
		e.RetryAfter = misuseRetryAfter
	case http.StatusTooManyRequests:
		e.Outcome = NotExecuted
		if answer.Code == stripe.ErrorCodeLockTimeout {
			e.RetryAfter = lockRetryAfter
		}
	case http.StatusInternalServerError:
		if answer.Type == stripe.ErrorTypeAPI && call.key != "" {
			e.ReplayedError = true
			e.RetryAfter = saved500RetryAfter
		}
	}
	if e.Outcome == Declined || e.Outcome == Refused && !e.NeedsOperator {
		e.Message = printable(answer.Msg)
	}
}

// decline believes a card error, unless the intent inside it is another one or
// is not declined at all.
func (e *Error) decline(call call) {
	if e.Intent != nil && call.intentID != "" && e.Intent.ID != call.intentID {
		e.NeedsOperator = true
		e.RetryAfter = misuseRetryAfter
		e.cause = ErrMismatch
		return
	}
	if e.Intent != nil && e.Intent.chargeable() {
		return
	}
	e.Outcome = Declined
	e.RetryAfter = 0
}

// blamesClientData says whether a refused parameter is one that our client
// chose. Anything else in a request is ours, and so is leaving something out.
func blamesClientData(answer *stripe.Error) bool {
	switch answer.Code {
	case stripe.ErrorCodeParameterMissing, stripe.ErrorCodeParameterUnknown:
		return false
	case stripe.ErrorCodeAmountTooSmall, stripe.ErrorCodeAmountTooLarge,
		// Refunded or contested at the provider, where our client cannot look.
		stripe.ErrorCodeChargeAlreadyRefunded, stripe.ErrorCodeChargeDisputed:
		return true
	}
	switch answer.Param {
	case "amount", "currency", "payment_method":
		return true
	}
	// A payment method that is used up is refused with neither code nor param.
	return strings.HasPrefix(answer.Msg, "The provided PaymentMethod ")
}

// fault sorts everything that is not an error of Stripe's.
func (e *Error) fault(err error, w *wire) {
	detail := printableFault(err)
	switch {
	case errors.Is(err, ErrMismatch):
		e.NeedsOperator = true
		e.RetryAfter = misuseRetryAfter
		e.cause = ErrMismatch
		return
	case w.status == 0:
		e.RetryAfter = networkRetryAfter
		e.cause = ErrNoResponse
		if w.nothingSent() {
			e.Outcome = NotExecuted
		}
	default:
		e.cause = ErrUnreadable
		if w.status/100 == 3 { // we talk to something that is not Stripe
			e.NeedsOperator = true
			e.RetryAfter = misuseRetryAfter
		}
	}
	if detail != nil {
		e.cause = fmt.Errorf("%w: %w", e.cause, detail)
	}
}

// printableFault finds in a chain the error whose text is known to hold nothing
// of the request or the answer; nil when there is none. stripe-go quotes answers
// it cannot read, and net/http quotes broken headers.
func printableFault(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return known
		}
	}
	var network *net.OpError
	if errors.As(err, &network) {
		return network
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return certificate
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return tooLarge
	}
	return nil
}

// printable returns s without characters that do not show, or "" when it looks
// as if it held an API key or a client secret. Stripe masks keys in its messages
// and sends no NUL, which jsonb refuses; this does not rely on either.
func printable(s string) string {
	if secret.MatchString(s) {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, s)
}

var secret = regexp.MustCompile(`_secret_|\b[sr]k_|[sr]k_(test|live)_`)
