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
	"time"
	"unicode"

	"github.com/stripe/stripe-go/v79"
)

const (
	shortRetryAfter      = 1 * time.Second // no response, or the intent is locked
	busyRetryAfter       = 2 * time.Second
	savedErrorRetryAfter = 30 * time.Second // Stripe resolves its 500s later
	operatorRetryAfter   = 60 * time.Second
)

// classify returns nil for success. It reads status, type and code, because Stripe's error types
// alone are too coarse.
func classify(err error, trace *sendTrace, call call) *Error {
	if err == nil {
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
		e.Outcome, e.NotOffered, e.RetryAfter = NotExecuted, true, operatorRetryAfter
		return e
	}
	if response, ok := errors.AsType[*failure](err); ok {
		e.copyDetails(response)
		e.noRetry = trace.header.Get("Stripe-Should-Retry") == "false"
		e.classifyStripeError(response, call, trace.header.Get("Idempotent-Replayed") == "true")
	} else {
		e.classifyOther(err, trace)
	}
	return e
}

func (e *Error) copyDetails(response *failure) {
	e.Type = string(response.Type.value)
	e.Code = printable(string(response.Code.value))
	e.DeclineCode = printable(response.DeclineCode.value)
	e.Param = printable(response.Param.value)
	if intent, err := decodeIntent(response.PaymentIntent, nil); err == nil {
		e.Intent = &intent
	}
}

// classifyStripeError leaves every error that it does not list Unknown.
func (e *Error) classifyStripeError(response *failure, call call, replayed bool) {
	var (
		status, code   = e.HTTPStatus, response.Code.value
		message        = response.Message.value
		rejected       = status == http.StatusBadRequest || status == http.StatusPaymentRequired
		card           = response.Type.value == stripe.ErrorTypeCard
		declined       = (rejected || status == http.StatusTooManyRequests) && (card || slices.Contains(declines, code))
		invalid        = response.Type.value == stripe.ErrorTypeInvalidRequest
		keyOfAnother   = response.Type.value == stripe.ErrorTypeIdempotency || strings.HasPrefix(message, "Keys for idempotent requests ")
		anotherIntent  = e.Intent != nil && call.intentID != "" && e.Intent.ID != call.intentID
		mayHaveCharged = e.Intent != nil && slices.Contains([]Status{StatusSucceeded, StatusProcessing, StatusRequiresCapture}, e.Intent.Status)
	)
	e.SavedUnderKey = replayed
	transient := []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusFailedDependency, http.StatusTooEarly}
	switch {
	case declined && anotherIntent:
		e.needOperator(ErrMismatch)
	case declined && !mayHaveCharged:
		e.Outcome, e.RetryAfter = Declined, 0
		e.Message = printable(message)
	case rejected && keyOfAnother:
		e.KeyUsed = true
		e.needOperator(nil)
	case rejected && (code == stripe.ErrorCodePaymentIntentUnexpectedState || code == stripe.ErrorCodeIntentInvalidState):
		e.UnexpectedState = true
	case rejected && invalid && causedByClientData(response):
		e.Outcome, e.RetryAfter = Refused, 0
		e.Message = printable(message)
	case rejected && invalid:
		// An operator can set up the account or fix the bug, so it is not final.
		e.needOperator(nil)
		if status == http.StatusBadRequest && !mayHaveCharged {
			e.Outcome = NotExecuted
		}
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		// Stripe checks these before it executes a request.
		e.Outcome = NotExecuted
		e.needOperator(nil)
	case status == http.StatusTooManyRequests:
		e.Outcome = NotExecuted
		if code == stripe.ErrorCodeLockTimeout {
			e.RetryAfter = shortRetryAfter
		}
	case status < http.StatusInternalServerError && !declined && !slices.Contains(transient, status):
		// Nothing proves that the request had no effect, and no repetition can change the answer: a failed
		// request (402) that is neither a decline nor the client's fault, or a status that Stripe does not document.
		e.needOperator(nil)
	case status == http.StatusInternalServerError && response.Type.value == stripe.ErrorTypeAPI && call.key != "":
		e.SavedUnderKey = true
		e.RetryAfter = savedErrorRetryAfter
	}
	if e.NeedsOperator && !card {
		e.OperatorMessage = withoutSecrets(message)
	}
}

func (e *Error) needOperator(cause error) {
	e.NeedsOperator = true
	e.RetryAfter = operatorRetryAfter
	e.cause = cause
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
		e.needOperator(ErrMismatch)
		return
	case errors.Is(err, errProviderKey), errors.Is(err, errInvalidRequest): // a bug, or a wrong configuration
		e.Outcome = NotExecuted
		e.needOperator(err)
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
	// The decline code live_mode_test_card must not match: it has no word boundary before de_test_,
	// and neither a capital nor a digit after it.
	secret   = regexp.MustCompile(`_secret_|whsec_|\b[sr]k_|\b[a-z]{2}_(test|live)_|_(test|live)_[a-z]*[A-Z0-9]`)
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
