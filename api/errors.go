package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
)

// Errors of this package. Each has a row in problemOf.
var (
	errNotFound         = errors.New("not found")
	errNoPage           = errors.New("no such page")
	errMethodNotAllowed = errors.New("method not allowed")
	errTooLarge         = errors.New("the body is too large")
	errUnsupportedMedia = errors.New("unsupported media type")
	errKeyMissing       = errors.New("no Idempotency-Key")
	errNotReady         = errors.New("not ready")
	errBodyCut          = errors.New("the body ended early")

	errInvalidToken      = fmt.Errorf("%w: the token is not valid", accounts.ErrUnauthorized)
	errUnsupportedCoding = fmt.Errorf("%w: the body has a content encoding", errUnsupportedMedia)
)

// problemType is a kind of problem, identified by its slug.
type problemType struct {
	slug     string
	status   int
	retry    string
	outcomes []string // possible values of outcome; the first one is the default
	title    string
	help     string // what happened; problemDocs has the rest
}

// The values of the member retry.
const (
	retrySameKey   = "same-key"
	retryCorrected = "corrected"
	retryNewKey    = "new-key"
	retryNever     = "never"
)

// The values of the member outcome.
const (
	outcomeNone    = "none"    // no request has claimed the key, or there is no key
	outcomeUnknown = "unknown" // a request has claimed the key, or may have
	outcomeFinal   = "final"   // the key has its final response
)

// The outcomes of problem types.
var (
	onlyNone       = []string{outcomeNone}
	onlyUnknown    = []string{outcomeUnknown}
	onlyFinal      = []string{outcomeFinal}
	noneOrUnknown  = []string{outcomeNone, outcomeUnknown}  // see problem.forRequest
	unknownOrFinal = []string{outcomeUnknown, outcomeFinal} // final if the first request is finished
)

// keyedError is an error of a request that looked up its key.
type keyedError struct {
	error
	created *orders.Resource // by a reaped key of a registered operation
}

func (e *keyedError) Unwrap() error { return e.error }

// The problems of the contract. Package orders writes the two that are stored.
var (
	problemKeyMissing = problemType{
		"idempotency-key-missing", http.StatusBadRequest, retryCorrected, onlyNone,
		"The Idempotency-Key header is missing",
		"Every POST requires an `Idempotency-Key` header: 16 to 255 visible ASCII characters, such as a UUID. This request has none.",
	}
	problemKeyInvalid = problemType{
		"idempotency-key-invalid", http.StatusBadRequest, retryCorrected, onlyUnknown,
		"The Idempotency-Key header is not valid",
		"An `Idempotency-Key` is one header line of 16 to 255 visible ASCII characters, raw or as a quoted String of RFC 9651. This request has another form of it.",
	}
	problemMalformed = problemType{
		"malformed-request", http.StatusBadRequest, retryCorrected, noneOrUnknown,
		"The request is malformed",
		"The body must be one JSON object in UTF-8, without duplicate members and with at most 2,048 names and values. The absolute value of a number is 0 or from 1e-30 to 2^53 − 1, and an IEEE 754 double must keep all of its digits. The webhook accepts only snapshot events that the payment provider has signed.",
	}
	problemUnauthorized = problemType{
		"unauthorized", http.StatusUnauthorized, retryCorrected, noneOrUnknown,
		"The API key is missing or not valid",
		"A request below `/v1` requires an API key: one header line `Authorization: Bearer <key>`. This request has none, or one that is not valid.",
	}
	problemNotFound = problemType{
		"not-found", http.StatusNotFound, retryNever, noneOrUnknown,
		"The resource does not exist",
		"The address is wrong, or the resource belongs to another account. The response is the same for both.",
	}
	problemMethodNotAllowed = problemType{
		"method-not-allowed", http.StatusMethodNotAllowed, retryNever, noneOrUnknown,
		"The method is not allowed",
		"The resource does not support this method. The `Allow` header lists the methods that it supports.",
	}
	problemTooLarge = problemType{
		"too-large", http.StatusRequestEntityTooLarge, retryCorrected, noneOrUnknown,
		"The request body is too large",
		"A request body has at most 64 KiB, an event of the payment provider at most 256 KiB. The server did not read the rest of this body and closed the connection.",
	}
	problemUnsupportedMedia = problemType{
		"unsupported-media-type", http.StatusUnsupportedMediaType, retryCorrected, noneOrUnknown,
		"The media type is not supported",
		"A request body is JSON in UTF-8 with `Content-Type: application/json` and without a content encoding. This request declares something else.",
	}
	problemKeyInProgress = problemType{
		"idempotency-key-in-progress", http.StatusConflict, retrySameKey, onlyUnknown,
		"A request with this Idempotency-Key is in progress",
		"An earlier request with the same key is in progress, or its server stopped a moment ago.",
	}
	problemKeyReused = problemType{
		"idempotency-key-reused", http.StatusUnprocessableEntity, retryNever, unknownOrFinal,
		"The Idempotency-Key was used for another request",
		"The key belongs to an earlier request with another body or another address. A key identifies one request permanently.",
	}
	problemKeyExpired = problemType{
		"idempotency-key-expired", http.StatusUnprocessableEntity, retryNever, onlyFinal,
		"The Idempotency-Key has expired",
		"An earlier request with this key is finished, and its response is no longer stored. It created the order in `order_id`, the refund in `refund`, or the resource in `resource`. A key never executes twice.",
	}
	problemValidation = problemType{
		"validation-failed", http.StatusUnprocessableEntity, retryCorrected, noneOrUnknown,
		"The request is not valid",
		"The request is well-formed, but some of its values are not valid. `errors` lists them, each with a JSON pointer, a code and a text.",
	}
	problemNotRefundable = problemType{
		"order-not-refundable", http.StatusUnprocessableEntity, retryNever, onlyNone, // or same-key, see problemOf
		"The order cannot be refunded",
		"Nothing can be refunded: the payment of the order is in progress, has failed, or was refunded in full. Refunds in progress count as refunded.",
	}
	problemExceedsRemaining = problemType{
		"refund-exceeds-remaining", http.StatusUnprocessableEntity, retryCorrected, onlyNone,
		"The refund exceeds what remains of the order",
		"The amount exceeds what remains of the order, which is `remaining`. Refunds in progress count as refunded.",
	}
	problemDeclined = problemType{
		orders.SlugPaymentDeclined, http.StatusPaymentRequired, retryNewKey, onlyFinal,
		"The payment was declined",
		"The bank or the provider declined the payment; `code` and `decline_code` state the reason. This is the final response of the key.",
	}
	problemRefused = problemType{
		orders.SlugPaymentRefused, http.StatusUnprocessableEntity, retryNewKey, onlyFinal,
		"The payment provider refused the request",
		"The provider rejected the request, for example because the payment method does not exist, or because the charge is already refunded there. This is the final response of the key.",
	}
	problemRateLimited = problemType{
		"rate-limited", http.StatusTooManyRequests, retrySameKey, noneOrUnknown,
		"Too many requests of this account are in progress",
		"The server is overloaded, and this account already has its share of the requests in progress.",
	}
	problemInternal = problemType{
		"internal-error", http.StatusInternalServerError, retrySameKey, onlyUnknown,
		"Internal error",
		"An error of the server. Its cause is in the server's log, under `request_id`. The same request with the same key resumes where this one stopped, and never charges twice.",
	}
	problemOutcomeUnknown = problemType{
		"payment-outcome-unknown", http.StatusServiceUnavailable, retrySameKey, onlyUnknown,
		"The outcome of the payment is not known yet",
		"The provider has not confirmed the outcome. The card may have been charged, or the refund may have been made.",
	}
	problemUnavailable = problemType{
		"temporarily-unavailable", http.StatusServiceUnavailable, retrySameKey, noneOrUnknown,
		"The service is temporarily unavailable",
		"The server is overloaded or stopping, it cannot reach the database or the payment provider, or the provider rejects its requests. No data is lost.",
	}
)

func problemTypes() []problemType {
	return []problemType{
		problemKeyMissing, problemKeyInvalid, problemMalformed, problemUnauthorized, problemNotFound,
		problemMethodNotAllowed, problemTooLarge, problemUnsupportedMedia, problemKeyInProgress, problemKeyReused,
		problemKeyExpired, problemValidation, problemNotRefundable, problemExceedsRemaining, problemDeclined, problemRefused, problemRateLimited, problemInternal,
		problemOutcomeUnknown, problemUnavailable,
	}
}

// problem is a problem document (RFC 9457).
type problem struct {
	Type      string              `json:"type"`
	Title     string              `json:"title"`
	Status    int                 `json:"status"`
	Detail    string              `json:"detail"`
	Retry     string              `json:"retry"`
	Outcome   string              `json:"outcome"`
	RequestID string              `json:"request_id"`
	Errors    []orders.FieldError `json:"errors,omitempty"`
	OrderID   *uuid.UUID          `json:"order_id,omitempty"`
	Refund    *orders.Resource    `json:"refund,omitempty"`
	Resource  *orders.Resource    `json:"resource,omitempty"`
	Remaining int64               `json:"remaining,omitempty"`

	slug       string
	retryAfter time.Duration
	jitter     int // up to so many seconds are added to retryAfter
	headers    [][2]string
	withoutKey string // replaces Detail if the request has no key
}

// Values of Retry-After if the cause of the problem has none.
const (
	inProgressRetryAfter  = time.Second     // most orders take less
	unavailableRetryAfter = 2 * time.Second // a restart of the database, say

	// Rejections come in bursts, so their Retry-After has jitter.
	overloadRetryAfter = time.Second
	overloadJitter     = 3
)

// problemOf maps an error to its problem. The text of an unknown error is only logged.
func problemOf(err error) problem {
	var (
		invalid  *orders.ValidationError
		expired  *idempotency.KeyExpiredError
		provider *orders.ProviderError

		notRefundable *orders.NotRefundableError
		exceeds       *orders.ExceedsRemainingError
	)
	switch {
	case errors.Is(err, accounts.ErrUnauthorized):
		p := problemUnauthorized.detail("Send a valid API key as a bearer token, in one Authorization header.")
		if errors.Is(err, errInvalidToken) {
			return p.header("WWW-Authenticate", `Bearer realm="orders", error="invalid_token"`)
		}
		return p.header("WWW-Authenticate", `Bearer realm="orders"`) // without a token no error (RFC 6750, 3.1)
	case errors.Is(err, errNoPage):
		return problemNotFound.detail("There is no resource at this address.")
	case errors.Is(err, errNotFound), errors.Is(err, orders.ErrNotFound):
		return problemNotFound.detail("There is no such resource in this account.")
	case errors.Is(err, errMethodNotAllowed):
		return problemMethodNotAllowed.detail("The Allow header lists the methods that this resource supports.")
	case errors.Is(err, errTooLarge):
		return problemTooLarge.detail(err.Error())
	case errors.Is(err, errUnsupportedMedia):
		p := problemUnsupportedMedia.detail("Send Content-Type: application/json, in UTF-8 and without a content encoding.").header("Accept", "application/json")
		if errors.Is(err, errUnsupportedCoding) {
			p = p.header("Accept-Encoding", "identity")
		}
		return p
	case errors.Is(err, errKeyMissing):
		return problemKeyMissing.detail("Send an Idempotency-Key header of 16 to 255 visible ASCII characters.")
	case errors.Is(err, idempotency.ErrInvalidKey):
		return problemKeyInvalid.detail("Send one Idempotency-Key header of 16 to 255 visible ASCII characters, raw or quoted.")
	case errors.Is(err, idempotency.ErrMalformed):
		return problemMalformed.detail(err.Error())
	case errors.Is(err, orders.ErrEventRefused):
		return problemMalformed.detail("The Stripe-Signature header must sign this body with the endpoint's secret, at a time within five minutes of the server's clock.")
	case errors.Is(err, orders.ErrInvalidEvent):
		return problemMalformed.detail("The signature is valid, but the body is not an event: a JSON object with id, object, type and data, whose numbers fit in a double.")
	case errors.Is(err, orders.ErrThinEvent):
		return problemMalformed.detail("The signature is valid, but this is a thin event: it has no data.object. Set the payload style of the endpoint to Snapshot in Stripe's dashboard.")
	case errors.Is(err, orders.ErrWebhooksOff):
		return problemNotFound.detail("The server has no webhook secret, so the webhook is off.")
	case errors.Is(err, idempotency.ErrKeyReused):
		p := problemKeyReused.detail("The body or the address differs from the key's first request.")
		if errors.Is(err, idempotency.ErrFinishedKeyReused) {
			p.Outcome = outcomeFinal
		}
		return p
	case errors.Is(err, idempotency.ErrInProgress):
		return problemKeyInProgress.detail("Send the same request again shortly.").after(inProgressRetryAfter)
	case errors.As(err, &invalid):
		p := problemValidation.detail(summary(invalid.Fields))
		p.Errors = invalid.Fields
		return p
	case errors.As(err, &notRefundable) && notRefundable.Pending():
		p := problemNotRefundable.detail("The payment of the order is in progress. Send the same request again shortly.").after(inProgressRetryAfter)
		p.Retry = retrySameKey
		return p
	case errors.As(err, &notRefundable) && notRefundable.Status == orders.StatusPaymentFailed:
		return problemNotRefundable.detail("The payment of the order failed, so there is nothing to refund.")
	case errors.As(err, &notRefundable):
		return problemNotRefundable.detail("The order is refunded in full. Refunds in progress count as refunded.")
	case errors.As(err, &exceeds):
		p := problemExceedsRemaining.detail("Send an amount of at most what remains, or omit it to refund all of that.")
		p.Remaining = exceeds.Remaining
		return p
	case errors.As(err, &expired):
		order, refund := orders.ResourcesOf(expired.Key)
		if order == uuid.Nil {
			return problemKeyExpired.detail("The key belongs to an earlier request of another operation.") // see forRequest
		}
		p := problemKeyExpired.detail("The key created the order in order_id.")
		if refund != uuid.Nil {
			p = problemKeyExpired.detail("The key created the refund in refund, of the order in order_id.")
			p.Refund = &orders.Resource{ID: refund, Href: orders.RefundPath(order, refund)}
		}
		p.OrderID = &order
		return p
	case errors.As(err, &provider) && errors.Is(provider.Kind, orders.ErrOutcomeUnknown):
		return problemOutcomeUnknown.detail("Send the same request with the same key to find out.").after(provider.RetryAfter)
	case errors.As(err, &provider):
		return problemUnavailable.detail("The payment provider did not accept the request.").after(provider.RetryAfter)
	case errors.Is(err, errBodyCut):
		return problemUnavailable.detail("The body ended early. Send the same request again, with the same key.").forRequestsWithoutKey("The body ended early. Send the same request again.").after(unavailableRetryAfter)
	case errors.Is(err, limiter.ErrRateLimited):
		return problemRateLimited.detail("Send the same request again a little later, with the same key.").forRequestsWithoutKey("Send the same request again a little later.").after(overloadRetryAfter).withJitter()
	case errors.Is(err, limiter.ErrOverloaded):
		return problemUnavailable.detail("The server is overloaded. Send the same request again a little later, with the same key.").forRequestsWithoutKey("The server is overloaded. Send the same request again a little later.").after(overloadRetryAfter).withJitter()
	case errors.Is(err, postgres.ErrUnavailable), errors.Is(err, idempotency.ErrNewerVersion), errors.Is(err, errNotReady):
		return problemUnavailable.detail("Send the same request again, with the same key.").forRequestsWithoutKey("Send the same request again.").after(unavailableRetryAfter)
	default:
		return problemInternal.detail("Send the same request with the same key.").forRequestsWithoutKey("Send the same request again.")
	}
}

// summary is for clients that log only the detail.
func summary(all []orders.FieldError) string {
	text := strings.TrimSpace(all[0].Pointer + " " + all[0].Detail)
	if n := len(all) - 1; n > 0 {
		text += fmt.Sprintf(" (errors lists %d more)", n)
	}
	return text
}

func (t problemType) detail(text string) problem {
	return problem{Type: "/problems/" + t.slug, Title: t.title, Status: t.status, Detail: text, Retry: t.retry, Outcome: t.outcomes[0], slug: t.slug}
}

func (p problem) after(wait time.Duration) problem {
	p.retryAfter = max(wait, time.Second)
	return p
}

// forRequest completes the problem of a request. The outcome is none only if the request
// has no key, or the lookup found its key unclaimed. Otherwise a request with the key may
// have moved money.
func (p problem) forRequest(r *http.Request, err error) problem {
	hasKey := r.Method == http.MethodPost && r.URL.Path != webhookPath && r.Header.Get("Idempotency-Key") != ""
	if !hasKey && p.withoutKey != "" {
		p.Detail = p.withoutKey
	}
	var keyed *keyedError
	lookedUp := errors.As(err, &keyed)
	if lookedUp && keyed.created != nil {
		p.Detail, p.Resource = "The key created the resource in resource.", keyed.created
	}
	interrupted := p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
	if p.Outcome == outcomeNone && (lookedUp && interrupted || !lookedUp && hasKey) {
		p.Outcome = outcomeUnknown
	}
	return p
}

// forRequestsWithoutKey sets the detail for a GET or an event.
func (p problem) forRequestsWithoutKey(text string) problem {
	p.withoutKey = text
	return p
}

func (p problem) header(name, value string) problem {
	p.headers = append(p.headers, [2]string{name, value})
	return p
}

// withJitter adds a random number of seconds to Retry-After.
func (p problem) withJitter() problem {
	p.jitter = overloadJitter
	return p
}

// retryAfterSeconds is the value of the Retry-After header, rounded up to seconds.
func (p problem) retryAfterSeconds() int { return int(math.Ceil(p.retryAfter.Seconds())) }
