package payments

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/stripe/stripe-go/v79"
)

const (
	shortRetryAfter         = 1 * time.Second  // no response, or the intent is locked
	busyRetryAfter          = 2 * time.Second  // such as a rate limit
	replayedErrorRetryAfter = 30 * time.Second // Stripe resolves its 500s later, and sends an event
	operatorRetryAfter      = 60 * time.Second
	maxRetryAfter           = 3600 // of a Retry-After header, in seconds
)

// classify returns nil for success. It uses status and code, because Stripe's error types are
// too coarse.
func classify(err error, trace *sendTrace, call call, testMode bool) *Error {
	if err == nil && trace.status == http.StatusOK {
		return nil
	}
	e := &Error{
		Outcome:    Unknown,
		HTTPStatus: trace.status,
		RequestID:  printable(trace.header.Get("Request-Id")),
		RetryAfter: busyRetryAfter,
	}
	rejected := []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound}
	if call.optional && slices.Contains(rejected, trace.status) {
		e.Outcome, e.NotOffered = NotExecuted, true
		return e
	}
	if response, ok := asStripeError(err); ok {
		e.copyDetails(response)
		e.classifyStripeError(response, call, trace.header.Get("Idempotent-Replayed") == "true")
		e.IntentMissing = testMode && intentMissing(response, call)
	} else {
		e.classifyOther(err, trace)
	}
	// Stripe does not document this header, but a gateway in front of it may send it.
	if seconds, err := strconv.Atoi(trace.header.Get("Retry-After")); err == nil && seconds > 0 && e.retryable() {
		e.minBackoff = time.Duration(min(seconds, maxRetryAfter)) * time.Second
		e.RetryAfter = max(e.RetryAfter, e.minBackoff)
	}
	return e
}

// Errors that are not in Stripe's format are a proxy's.
func asStripeError(err error) (*stripe.Error, bool) {
	response, ok := errors.AsType[*stripe.Error](err)
	types := []stripe.ErrorType{stripe.ErrorTypeAPI, stripe.ErrorTypeCard, stripe.ErrorTypeIdempotency, stripe.ErrorTypeInvalidRequest}
	return response, ok && slices.Contains(types, response.Type)
}

func (e *Error) copyDetails(response *stripe.Error) {
	e.Type = string(response.Type)
	e.Code = printable(string(response.Code))
	e.DeclineCode = printable(string(response.DeclineCode))
	e.Param = printable(response.Param)
	if intent, err := newIntent(response.PaymentIntent); err == nil {
		e.Intent = &intent
	}
}

// Unlisted errors stay Unknown.
func (e *Error) classifyStripeError(response *stripe.Error, call call, replayed bool) {
	var (
		status         = e.HTTPStatus
		card           = response.Type == stripe.ErrorTypeCard
		invalid        = response.Type == stripe.ErrorTypeInvalidRequest
		anotherIntent  = e.Intent != nil && call.intentID != "" && e.Intent.ID != call.intentID
		mayHaveCharged = e.Intent != nil && e.Intent.mayHaveCharged()
	)
	switch {
	case status == http.StatusPaymentRequired && card && anotherIntent:
		e.needOperator(ErrMismatch)
	case status == http.StatusPaymentRequired && card && !mayHaveCharged:
		e.Outcome, e.RetryAfter = Declined, 0
		e.Message = printable(response.Msg)
	case status == http.StatusBadRequest && response.Type == stripe.ErrorTypeIdempotency:
		// The key was used with other parameters. That request may have had an effect.
		e.needOperator(nil)
	case status == http.StatusBadRequest && response.Code == stripe.ErrorCodePaymentIntentUnexpectedState:
		e.UnexpectedState = true
	case status == http.StatusBadRequest && invalid && causedByClientData(response):
		e.Outcome, e.RetryAfter = Refused, 0
		e.Message = printable(response.Msg)
	case status == http.StatusBadRequest && invalid:
		// An account that is not set up, or a bug: an operator can fix it, so it is not final.
		e.needOperator(nil)
		e.ReplayedError = replayed
		if !mayHaveCharged {
			e.Outcome = NotExecuted
		}
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		// Stripe checks these before it executes a request.
		e.Outcome = NotExecuted
		e.needOperator(nil)
	case status == http.StatusTooManyRequests:
		e.Outcome = NotExecuted
		if response.Code == stripe.ErrorCodeLockTimeout {
			e.RetryAfter = shortRetryAfter
		}
	case status == http.StatusInternalServerError && response.Type == stripe.ErrorTypeAPI && call.key != "":
		e.ReplayedError = true
		e.RetryAfter = replayedErrorRetryAfter
	}
	if e.NeedsOperator && !card {
		e.OperatorMessage = withoutSecrets(response.Msg)
	}
}

func (e *Error) needOperator(cause error) {
	e.NeedsOperator = true
	e.RetryAfter = operatorRetryAfter
	e.cause = cause
}

func intentMissing(response *stripe.Error, call call) bool {
	const otherMode = "live mode" // Stripe names the mode that has such an object
	return call.intentID != "" && response.Code == stripe.ErrorCodeResourceMissing &&
		(response.Param == "intent" || response.Param == "payment_intent") && !strings.Contains(response.Msg, otherMode)
}

// causedByClientData reports whether a 400 is about a value chosen by our client. If in
// doubt it is false, so the order stays unfinished and an operator is alerted.
func causedByClientData(response *stripe.Error) bool {
	// A used payment method has no code, and that of a customer the code of a missing parameter.
	if strings.HasPrefix(response.Msg, "The provided PaymentMethod ") ||
		strings.HasPrefix(response.Msg, "The `payment_method` parameter supplied ") {
		return true
	}
	switch response.Code {
	case stripe.ErrorCodeAmountTooSmall, stripe.ErrorCodeAmountTooLarge,
		stripe.ErrorCodePaymentIntentIncompatiblePaymentMethod, stripe.ErrorCodePaymentMethodCurrencyMismatch,
		stripe.ErrorCodePaymentMethodUnsupportedType,
		// Refunded or disputed at the provider, which our client cannot see.
		stripe.ErrorCodeChargeAlreadyRefunded, stripe.ErrorCodeChargeDisputed,
		stripe.ErrorCodeChargeNotRefundable, stripe.ErrorCodeRefundDisputedPayment:
		return true
	case "", stripe.ErrorCodeResourceMissing, stripe.ErrorCodeParameterInvalidEmpty, stripe.ErrorCodeParameterInvalidInteger,
		stripe.ErrorCodePaymentIntentInvalidParameter, stripe.ErrorCodePaymentMethodInvalidParameter,
		stripe.ErrorCodePaymentMethodUnexpectedState:
		// A text that links to the dashboard is addressed to the account's owner.
		chosen := response.Param == "amount" || response.Param == "currency" || response.Param == "payment_method"
		return chosen && !strings.Contains(response.Msg, "dashboard.stripe.com")
	default:
		return false
	}
}

func (e *Error) classifyOther(err error, trace *sendTrace) {
	switch {
	case errors.Is(err, ErrMismatch):
		e.needOperator(ErrMismatch)
		return
	case trace.status == 0:
		e.RetryAfter = shortRetryAfter
		e.cause = ErrNoResponse
		if trace.notSent() {
			e.Outcome = NotExecuted
		}
	case trace.status/100 == 3: // a redirect: this is not Stripe
		e.needOperator(ErrUnreadable)
	default:
		e.cause = ErrUnreadable
	}
	if detail := printableCause(err); detail != nil {
		e.cause = fmt.Errorf("%w: %w", e.cause, detail)
	}
}

// printableCause returns an error of err's chain, or nil. Others may quote the response.
func printableCause(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return known
		}
	}
	return cmp.Or(find[*net.OpError](err), find[*tls.CertificateVerificationError](err), find[forwardProxyError](err))
}

func find[E error](err error) error {
	if found, ok := errors.AsType[E](err); ok {
		return found
	}
	return nil
}

// printable removes invisible characters (jsonb rejects NUL), and a text with a secret.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, s)
	if secret.MatchString(s) {
		return ""
	}
	return s
}

var (
	secret   = regexp.MustCompile(`_secret_|whsec_|\b[sr]k_|[a-z]{2}_(test|live)_`)
	personal = regexp.MustCompile(`@|[0-9]{12}`) // an e-mail address or a card number
)

// maxOperatorMessage leaves room for the identifiers in idempotency_keys.last_error.
const maxOperatorMessage = 300

func withoutSecrets(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = printable(word)
		if words[i] == "" || personal.MatchString(words[i]) {
			words[i] = "[removed]"
		}
	}
	characters := []rune(strings.Join(words, " "))
	if len(characters) > maxOperatorMessage {
		characters = append(characters[:maxOperatorMessage-1], '…')
	}
	return string(characters)
}
