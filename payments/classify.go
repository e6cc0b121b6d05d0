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
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/stripe/stripe-go/v79"
)

// Retry delays by kind of failure.
const (
	networkRetryAfter = 1 * time.Second
	// Another request holds the intent's lock while its charge runs.
	lockRetryAfter = 1 * time.Second
	// The key's first request is running, a gateway restarts, or a rate limit is
	// exceeded.
	busyRetryAfter = 2 * time.Second
	// Stripe resolves its own 500s later and then sends a webhook event.
	replayedErrorRetryAfter = 30 * time.Second
	// Only an operator can fix it.
	operatorRetryAfter = 60 * time.Second
	// Upper bound of a Retry-After header, in seconds.
	maxRetryAfter = 3600
)

// classify returns the outcome of an attempt, nil for success, by status and code:
// Stripe's error types are too coarse.
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

// asStripeError returns an error in Stripe's format. Other error responses come from a
// proxy.
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
	switch e.HTTPStatus {
	case http.StatusPaymentRequired:
		if response.Type == stripe.ErrorTypeCard {
			e.classifyCardError(call)
		}
	case http.StatusBadRequest:
		switch {
		case response.Type == stripe.ErrorTypeIdempotency:
			// The key was used with other parameters. That request may have had an
			// effect.
			e.needOperator(nil)
		case response.Code == stripe.ErrorCodePaymentIntentUnexpectedState:
			e.UnexpectedState = true
		case response.Type != stripe.ErrorTypeInvalidRequest:
		case causedByClientData(response):
			e.Outcome = Refused
			e.RetryAfter = 0
		default:
			e.classifyOurFault(replayed)
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		// Stripe checks these before it executes a request. They are not final: the
		// same request succeeds once the API key or the URL is fixed.
		e.Outcome = NotExecuted
		e.needOperator(nil)
	case http.StatusTooManyRequests:
		e.Outcome = NotExecuted
		if response.Code == stripe.ErrorCodeLockTimeout {
			e.RetryAfter = lockRetryAfter
		}
	case http.StatusInternalServerError:
		if response.Type == stripe.ErrorTypeAPI && call.key != "" {
			e.ReplayedError = true
			e.RetryAfter = replayedErrorRetryAfter
		}
	}
	switch {
	case e.Outcome == Declined || e.Outcome == Refused:
		e.Message = printable(response.Msg)
	case e.NeedsOperator && response.Type != stripe.ErrorTypeCard:
		e.OperatorMessage = withoutSecrets(response.Msg)
	}
}

// intentMissing reports whether the intent of the call exists in no mode of the
// account.
func intentMissing(response *stripe.Error, call call) bool {
	const otherMode = "live mode" // Stripe names the mode that has such an object
	return call.intentID != "" && response.Code == stripe.ErrorCodeResourceMissing &&
		(response.Param == "intent" || response.Param == "payment_intent") && !strings.Contains(response.Msg, otherMode)
}

// classifyCardError classifies a card error as Declined, unless its intent contradicts
// it.
func (e *Error) classifyCardError(call call) {
	switch {
	case e.Intent != nil && call.intentID != "" && e.Intent.ID != call.intentID:
		e.needOperator(ErrMismatch)
	case e.Intent == nil || !e.Intent.mayHaveCharged():
		e.Outcome = Declined
		e.RetryAfter = 0
	}
}

func (e *Error) needOperator(cause error) {
	e.NeedsOperator = true
	e.RetryAfter = operatorRetryAfter
	e.cause = cause
}

// classifyOurFault classifies a 400 that an operator can fix: an account that is not
// set up, or a bug. It is not final.
func (e *Error) classifyOurFault(replayed bool) {
	e.needOperator(nil)
	e.ReplayedError = replayed
	if e.Intent == nil || !e.Intent.mayHaveCharged() {
		e.Outcome = NotExecuted
	}
}

// causedByClientData reports whether a 400 is about a value chosen by our client. If in
// doubt it is false: the order stays unfinished and operators are alerted.
func causedByClientData(response *stripe.Error) bool {
	// A used payment method has neither code nor param. A payment method of a customer
	// has the code of a missing parameter.
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
		e.RetryAfter = networkRetryAfter
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

// printableCause returns the first error in err's chain that is safe to print, or nil.
// Other errors may quote the response: stripe-go and net/http do.
func printableCause(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return known
		}
	}
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return network
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return certificate
	}
	if proxy, ok := errors.AsType[forwardProxyError](err); ok {
		return proxy
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	return nil
}

type forwardProxyError int

func (e forwardProxyError) Error() string {
	return fmt.Sprintf("the forward proxy refused the connection with status %d", int(e))
}

// printable removes invisible characters from s: jsonb rejects NUL. It returns "" if s
// may contain an API key, a client secret or a webhook secret.
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

// withoutSecrets replaces each word of a text that may be secret or personal.
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
