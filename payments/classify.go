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
	"strings"
	"unicode"

	"github.com/stripe/stripe-go/v79"
)

// classify returns nil for success. It reads status, type and code, because Stripe's error types
// alone are too coarse.
func classify(err error, trace *sendTrace, call call) *Error {
	if err == nil {
		return nil
	}
	e := &Error{HTTPStatus: trace.status, RequestID: printable(trace.header.Get("Request-Id"))}
	response, ok := errors.AsType[*failure](err)
	switch {
	case call.optional && slices.Contains([]int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound}, trace.status):
		e.Outcome = NotOffered
	case ok:
		e.noRetry = trace.header.Get("Stripe-Should-Retry") == "false"
		e.classifyStripeError(response, call, trace.header.Get("Idempotent-Replayed") == "true")
	default:
		e.classifyOther(err, trace)
	}
	return e
}

// classifyStripeError leaves every error that it does not list Unknown.
func (e *Error) classifyStripeError(response *failure, call call, replayed bool) {
	e.Type = string(response.Type.value)
	e.Code = printable(string(response.Code.value))
	e.DeclineCode = printable(response.DeclineCode.value)
	e.Param = printable(response.Param.value)
	if intent, err := decodeIntent(response.PaymentIntent, nil); err == nil {
		e.Intent = &intent
	}
	var (
		status, code   = e.HTTPStatus, response.Code.value
		message        = response.Message.value
		rejected       = status == http.StatusBadRequest || status == http.StatusPaymentRequired
		declined       = (rejected || status == http.StatusTooManyRequests) && (response.Type.value == stripe.ErrorTypeCard || slices.Contains(declines, code))
		invalid        = response.Type.value == stripe.ErrorTypeInvalidRequest
		keyOfAnother   = response.Type.value == stripe.ErrorTypeIdempotency || strings.HasPrefix(message, "Keys for idempotent requests ")
		anotherIntent  = e.Intent != nil && call.intentID != "" && e.Intent.ID != call.intentID
		mayHaveCharged = e.Intent != nil && slices.Contains([]Status{StatusSucceeded, StatusProcessing, StatusRequiresCapture}, e.Intent.Status)
		saved500       = status == http.StatusInternalServerError && response.Type.value == stripe.ErrorTypeAPI && call.key != ""
	)
	e.SavedUnderKey = replayed || saved500
	transient := []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusFailedDependency, http.StatusTooEarly}
	switch {
	case declined && anotherIntent:
		e.NeedsOperator, e.cause = true, ErrMismatch
	case declined && !mayHaveCharged:
		e.Outcome = Declined
	case rejected && keyOfAnother:
		e.Outcome, e.NeedsOperator = KeyUsed, true
	case rejected && (code == stripe.ErrorCodePaymentIntentUnexpectedState || code == stripe.ErrorCodeIntentInvalidState):
		e.Outcome = UnexpectedState
	case rejected && invalid && causedByClientData(response):
		e.Outcome = Refused
	case status == http.StatusBadRequest && invalid && !mayHaveCharged:
		// An operator can set up the account or fix the bug, so it is not final.
		e.Outcome, e.NeedsOperator = NotExecuted, true
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		// Stripe checks these before it executes a request.
		e.Outcome, e.NeedsOperator = NotExecuted, true
	case status == http.StatusTooManyRequests:
		e.Outcome = NotExecuted
	case rejected && invalid, status < http.StatusInternalServerError && !declined && !slices.Contains(transient, status):
		// Nothing proves that the request had no effect, and no repetition can change the answer: a failed
		// request (402) that is neither a decline nor the client's fault, or a status that Stripe does not document.
		e.NeedsOperator = true
	}
	switch {
	case e.Outcome == Declined, e.Outcome == Refused:
		e.Message = printable(message)
	case e.NeedsOperator:
		e.Message = withoutSecrets(message)
	}
}

// declines are the codes with which the card, the customer or the bank declines a payment. Their type is
// not always card_error: that of card_decline_rate_limit_exceeded is invalid_request_error
// (github.com/stripe/stripe-go/issues/1077), and that of card_declined was once
// (github.com/stripe/stripe-php/issues/762). An operator cannot help with any of them. insufficient_funds is not
// listed, because in the error of a refund it may be about the account's balance.
var declines = []stripe.ErrorCode{
	stripe.ErrorCodeCardDeclineRateLimitExceeded, // may be charged again after a day
	stripe.ErrorCodeCardDeclined, stripe.ErrorCodeExpiredCard, stripe.ErrorCodeProcessingError,
	stripe.ErrorCodeIncorrectAddress, stripe.ErrorCodeIncorrectCVC, stripe.ErrorCodeIncorrectNumber, stripe.ErrorCodeIncorrectZip,
	stripe.ErrorCodeInvalidCVC, stripe.ErrorCodeInvalidExpiryMonth, stripe.ErrorCodeInvalidExpiryYear, stripe.ErrorCodeInvalidNumber,
	stripe.ErrorCodeAuthenticationRequired, stripe.ErrorCodePaymentIntentAuthenticationFailure,
	stripe.ErrorCodePaymentIntentMandateInvalid, stripe.ErrorCodePaymentIntentPaymentAttemptExpired,
	stripe.ErrorCodePaymentIntentPaymentAttemptFailed, stripe.ErrorCodePaymentMethodCustomerDecline,
	stripe.ErrorCodePaymentMethodNotAvailable, stripe.ErrorCodePaymentMethodProviderDecline,
	stripe.ErrorCodePaymentMethodProviderTimeout,
	stripe.ErrorCodeAccountClosed, stripe.ErrorCodeBankAccountDeclined, stripe.ErrorCodeBankAccountRestricted,
	stripe.ErrorCodeDebitNotAuthorized, stripe.ErrorCodeNoAccount, stripe.ErrorCodePaymentMethodBankAccountBlocked,
	stripe.ErrorCodeReferToCustomer,
}

// causedByClientData reports whether a rejection is about a value of our client. In doubt it reports
// false, so the order stays unfinished and an operator is alerted.
func causedByClientData(response *failure) bool {
	// Some errors of a payment method have no code, or that of a missing parameter.
	message, param := response.Message.value, response.Param.value
	if strings.HasPrefix(message, "The provided PaymentMethod ") ||
		strings.HasPrefix(message, "The `payment_method` parameter supplied ") {
		return true
	}
	switch response.Code.value {
	case stripe.ErrorCodeAmountTooSmall, stripe.ErrorCodeAmountTooLarge, stripe.ErrorCodeInvalidChargeAmount,
		stripe.ErrorCodePaymentIntentIncompatiblePaymentMethod, stripe.ErrorCodePaymentMethodCurrencyMismatch,
		stripe.ErrorCodePaymentMethodBillingDetailsAddressMissing, stripe.ErrorCodePaymentMethodUnsupportedType,
		// Our client cannot see that the charge was refunded or disputed at the provider.
		stripe.ErrorCodeChargeAlreadyRefunded, stripe.ErrorCodeChargeDisputed,
		stripe.ErrorCodeChargeNotRefundable, stripe.ErrorCodeRefundDisputedPayment:
		return true
	case "", stripe.ErrorCodeResourceMissing, stripe.ErrorCodeParameterInvalidEmpty, stripe.ErrorCodeParameterInvalidInteger,
		stripe.ErrorCodePaymentIntentInvalidParameter, stripe.ErrorCodePaymentMethodInvalidParameter,
		stripe.ErrorCodePaymentMethodUnexpectedState:
		chosen := param == "amount" || param == "currency" || param == "payment_method"
		return chosen && !ofConfiguration.MatchString(message)
	default:
		return false
	}
}

// ofConfiguration matches messages to the account's owner: those with a link to the dashboard, and
// those about an object of the other mode or of another account.
var ofConfiguration = regexp.MustCompile(`(?i)dashboard\.stripe\.com|\b(live|test) ?mode|\bStripe-Account\b`)

func (e *Error) classifyOther(err error, trace *sendTrace) {
	switch {
	case errors.Is(err, ErrMismatch):
		e.NeedsOperator, e.cause = true, ErrMismatch
		return
	case errors.Is(err, errNotSent): // a bug, or a wrong configuration
		e.Outcome, e.NeedsOperator, e.cause = NotExecuted, true, errNotSent
		return
	case trace.status == 0 && trace.notSent():
		e.Outcome, e.cause = NotExecuted, ErrNoResponse
	case trace.status == 0:
		e.cause = ErrNoResponse
	default:
		e.NeedsOperator, e.cause = trace.status/100 == 3, ErrUnreadable // after a redirect, because this is not Stripe
	}
	if detail := printableCause(err); detail != nil {
		e.cause = fmt.Errorf("%w: %w", e.cause, detail)
	}
}

// printableCause returns a cause that does not quote the response, or nil.
func printableCause(err error) error {
	if object, ok := errors.AsType[unreadable](err); ok {
		return object
	}
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
	return nil
}

// printable removes invisible characters (jsonb rejects NUL), and texts with a secret.
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
	// The decline code live_mode_test_card is no secret, although it contains de_test_. So a form
	// with two letters begins a word, and the last one has a capital or a digit, as the secrets of Stripe's objects do.
	secret   = regexp.MustCompile(`_secret_|whsec_|\b[sr]k_|\b[a-z]{2}_(test|live)_|_(test|live)_[a-z]*[A-Z0-9]`)
	personal = regexp.MustCompile(`@|[0-9]{12}`) // an e-mail address or a card number
)

func withoutSecrets(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = printable(word)
		if words[i] == "" || personal.MatchString(words[i]) {
			words[i] = "[removed]"
		}
	}
	return strings.Join(words, " ")
}
