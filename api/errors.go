package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
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

// problemType is a kind of problem, which clients and people distinguish by its slug.
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
	outcomeNone    = "none"    // rejected before the claim of its key
	outcomeUnknown = "unknown" // the key is claimed, or may be
	outcomeFinal   = "final"   // the key has its final response
)

// The outcomes of problem types.
var (
	onlyNone       = []string{outcomeNone}
	onlyUnknown    = []string{outcomeUnknown}
	onlyFinal      = []string{outcomeFinal}
	noneOrUnknown  = []string{outcomeNone, outcomeUnknown}  // unknown for a keyedError
	unknownOrFinal = []string{outcomeUnknown, outcomeFinal} // final if the first request is finished
)

// keyedError is an error of a request that looked up its key, or saw it held by
// another run. The key may be claimed, by this request or an earlier one.
type keyedError struct{ error }

func (e *keyedError) Unwrap() error { return e.error }

// The problems of the contract. Package orders writes the two that are stored; they
// are listed here for their pages.
var (
	problemKeyMissing = problemType{
		"idempotency-key-missing", http.StatusBadRequest, retryCorrected, onlyNone,
		"The Idempotency-Key header is missing",
		"Every POST names its request with an Idempotency-Key of its own: 16 to 255 visible ASCII characters, such as a UUID. This one has none.",
	}
	problemKeyInvalid = problemType{
		"idempotency-key-invalid", http.StatusBadRequest, retryCorrected, onlyNone,
		"The Idempotency-Key header is not valid",
		"An Idempotency-Key is one header line of 16 to 255 visible ASCII characters, as it is or as a quoted string of RFC 9651. What was sent is something else.",
	}
	problemMalformed = problemType{
		"malformed-request", http.StatusBadRequest, retryCorrected, onlyNone,
		"The request cannot be read",
		"The body must be one JSON object in UTF-8, without duplicate members and with at most 2,048 names and values. A number is 0, or from 1e-30 to 2^53 − 1 without its sign, and has at most 17 significant digits, all of which a double keeps. What is sent to the webhook must be an event that the payment provider has signed.",
	}
	problemUnauthorized = problemType{
		"unauthorized", http.StatusUnauthorized, retryCorrected, onlyNone,
		"The API key is missing or not valid",
		"An account's API key is sent as `Authorization: Bearer <key>`, on one line. None was sent, or none that is known here.",
	}
	problemNotFound = problemType{
		"not-found", http.StatusNotFound, retryNever, onlyNone,
		"There is nothing here",
		"The address is wrong, or the resource belongs to another account.",
	}
	problemMethodNotAllowed = problemType{
		"method-not-allowed", http.StatusMethodNotAllowed, retryNever, onlyNone,
		"The method is not allowed here",
		"The address exists and does not take this method. The `Allow` header names those that it takes.",
	}
	problemTooLarge = problemType{
		"too-large", http.StatusRequestEntityTooLarge, retryCorrected, onlyNone,
		"The request body is too large",
		"A request body has at most 64 KiB, an event of the payment provider 256 KiB. The rest of this one was not read, and the connection was closed.",
	}
	problemUnsupportedMedia = problemType{
		"unsupported-media-type", http.StatusUnsupportedMediaType, retryCorrected, onlyNone,
		"The media type is not supported",
		"A body is JSON in UTF-8, declared as `application/json`, without a content encoding. This one is declared as something else.",
	}
	problemKeyInProgress = problemType{
		"idempotency-key-in-progress", http.StatusConflict, retrySameKey, onlyUnknown,
		"A request with this Idempotency-Key is in progress",
		"An earlier request with the same key is still being worked on, or was a moment ago when its server was lost.",
	}
	problemKeyReused = problemType{
		"idempotency-key-reused", http.StatusUnprocessableEntity, retryNever, unknownOrFinal,
		"The Idempotency-Key was used for another request",
		"The key belongs to a request with another body or address. A key names one request for ever.",
	}
	problemKeyExpired = problemType{
		"idempotency-key-expired", http.StatusUnprocessableEntity, retryNever, onlyFinal,
		"The Idempotency-Key has expired",
		"The key was used long ago and made the order named in `order_id`, or the refund of it named in `refund`. The answer is no longer kept, and a key never executes twice.",
	}
	problemValidation = problemType{
		"validation-failed", http.StatusUnprocessableEntity, retryCorrected, onlyNone,
		"The request is not valid",
		"The request can be read, and its values cannot be taken. `errors` lists what is wrong, each with a JSON pointer.",
	}
	problemNotRefundable = problemType{
		"order-not-refundable", http.StatusUnprocessableEntity, retryNever, onlyNone, // or same-key, see problemOf
		"The order cannot be refunded",
		"Nothing of the order can be refunded: its payment is in progress, failed, or is refunded in full. Refunds in progress count as refunded.",
	}
	problemExceedsRemaining = problemType{
		"refund-exceeds-remaining", http.StatusUnprocessableEntity, retryCorrected, onlyNone,
		"The refund exceeds what remains of the order",
		"The amount of the refund is larger than what remains of the order, which `remaining` states. Refunds in progress count as refunded.",
	}
	problemDeclined = problemType{
		orders.SlugPaymentDeclined, http.StatusPaymentRequired, retryNewKey, onlyFinal,
		"The payment was declined",
		"The card was declined and not charged; `code` and `decline_code` say why. This is the final answer of this key.",
	}
	problemRefused = problemType{
		orders.SlugPaymentRefused, http.StatusUnprocessableEntity, retryNewKey, onlyFinal,
		"The payment provider refused the request",
		"The provider does not take this request, for instance because it does not know the payment method, or because the charge was refunded there already. This is the final answer of this key.",
	}
	problemRateLimited = problemType{
		"rate-limited", http.StatusTooManyRequests, retrySameKey, noneOrUnknown,
		"Too many requests of this account are under way",
		"This account has its share of what the server can do at once.",
	}
	problemInternal = problemType{
		"internal-error", http.StatusInternalServerError, retrySameKey, onlyUnknown,
		"Something went wrong on our side",
		"The fault is ours, and its text stays in our log. The same request with the same key goes on from where this one stopped, and never charges twice.",
	}
	problemOutcomeUnknown = problemType{
		"payment-outcome-unknown", http.StatusServiceUnavailable, retrySameKey, onlyUnknown,
		"The outcome of the payment is not known yet",
		"The card may have been charged, or the refund made; the provider has not said so yet.",
	}
	problemUnavailable = problemType{
		"temporarily-unavailable", http.StatusServiceUnavailable, retrySameKey, noneOrUnknown,
		"The service is temporarily unavailable",
		"The database, the payment provider or this server cannot be reached, is stopping, or has too much to do. Nothing is lost.",
	}
)

// problemTypes lists all of them, for the pages.
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
	Refund    *resource           `json:"refund,omitempty"`
	Remaining int64               `json:"remaining,omitempty"`

	slug       string
	retryAfter time.Duration
	jitter     int // up to so many seconds are added to retryAfter
	headers    [][2]string
	readDetail string // replaces Detail if the request has no key: a GET, or an event
}

// resource links to an object of the API.
type resource struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

// Values of Retry-After if the cause of the problem has none.
const (
	inProgressRetryAfter  = time.Second     // most orders take less
	unavailableRetryAfter = 2 * time.Second // a restart of the database, say

	// Rejections come in bursts, so their Retry-After has jitter.
	overloadRetryAfter = time.Second
	overloadJitter     = 3
)

// problemOf is the only mapping of errors to problems. An unknown error is an internal
// error, whose text is only logged.
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
		p := problemUnauthorized.detail("Send an API key that is valid, as a bearer token in one Authorization header.")
		if errors.Is(err, errInvalidToken) {
			return p.header("WWW-Authenticate", `Bearer realm="orders", error="invalid_token"`)
		}
		return p.header("WWW-Authenticate", `Bearer realm="orders"`) // without a token no error (RFC 6750, 3.1)
	case errors.Is(err, errNoPage):
		return problemNotFound.detail("Nothing is at this address.")
	case errors.Is(err, errNotFound), errors.Is(err, orders.ErrNotFound):
		return problemNotFound.detail("Nothing is at this address for this account.")
	case errors.Is(err, errMethodNotAllowed):
		return problemMethodNotAllowed.detail("See the Allow header.")
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
		return problemMalformed.detail("The Stripe-Signature header must sign this body with the endpoint's secret, at a time within five minutes from now.")
	case errors.Is(err, orders.ErrInvalidEvent):
		return problemMalformed.detail("The signature is genuine, but the body is not an event: a JSON object with id, object, type and data, whose numbers fit in a double.")
	case errors.Is(err, orders.ErrWebhooksOff):
		return problemNotFound.detail("No webhook secret is configured here, so the webhook is off.")
	case errors.Is(err, idempotency.ErrKeyReused):
		p := problemKeyReused.detail("The body or the address differs from the key's first request.")
		if errors.Is(err, idempotency.ErrFinishedKeyReused) {
			p.Outcome = outcomeFinal
		}
		return p
	case errors.Is(err, idempotency.ErrInProgress):
		return problemKeyInProgress.detail("Send the same request again shortly.").after(inProgressRetryAfter)
	case errors.As(err, &invalid):
		p := problemValidation.detail("See errors.")
		p.Errors = invalid.Fields
		return p
	case errors.As(err, &notRefundable) && notRefundable.Pending():
		p := problemNotRefundable.detail("The payment of the order is in progress. Send the same request again shortly.").after(inProgressRetryAfter)
		p.Retry = retrySameKey
		return p
	case errors.As(err, &notRefundable) && notRefundable.Status == orders.StatusPaymentFailed:
		return problemNotRefundable.detail("The payment of the order failed, so there is nothing to refund.")
	case errors.As(err, &notRefundable):
		return problemNotRefundable.detail("The order is refunded in full, or will be when its refunds in progress are made.")
	case errors.As(err, &exceeds):
		p := problemExceedsRemaining.detail("Send an amount of at most what remains, or none for all of it.")
		p.Remaining = exceeds.Remaining
		return p
	case errors.As(err, &expired):
		order, refund := orders.ResourcesOf(expired.Key)
		p := problemKeyExpired.detail("The key made the order named in order_id.")
		if refund != uuid.Nil {
			p = problemKeyExpired.detail("The key made the refund named in refund, of the order named in order_id.")
			p.Refund = &resource{ID: refund, Href: orders.RefundPath(order, refund)}
		}
		p.OrderID = &order
		return p
	case errors.As(err, &provider) && errors.Is(provider.Kind, orders.ErrOutcomeUnknown):
		return problemOutcomeUnknown.detail("Send the same request with the same key to find out.").after(provider.RetryAfter)
	case errors.As(err, &provider):
		return problemUnavailable.detail("The payment provider did not accept the request.").after(provider.RetryAfter).forKey(err)
	case errors.Is(err, errBodyCut):
		return problemUnavailable.detail("The body ended early. Send the same request again, under the same key if it had one.").after(unavailableRetryAfter)
	case errors.Is(err, limiter.ErrRateLimited):
		return problemRateLimited.detail("Send the same request again a little later, under the same key if it had one.").forReads("Send the same request again a little later.").after(overloadRetryAfter).withJitter().forKey(err)
	case errors.Is(err, limiter.ErrOverloaded):
		return problemUnavailable.detail("The server is overloaded. Send the same request again a little later, under the same key if it had one.").forReads("The server is overloaded. Send the same request again a little later.").after(overloadRetryAfter).withJitter().forKey(err)
	case errors.Is(err, postgres.ErrUnavailable), errors.Is(err, idempotency.ErrNewerVersion), errors.Is(err, errNotReady):
		return problemUnavailable.detail("Send the same request again, under the same key if it had one.").forReads("Send the same request again.").after(unavailableRetryAfter).forKey(err)
	default:
		return problemInternal.detail("Send the same request with the same key.").forReads("Send the same request again.")
	}
}

func (t problemType) detail(text string) problem {
	return problem{Type: "/problems/" + t.slug, Title: t.title, Status: t.status, Detail: text, Retry: t.retry, Outcome: t.outcomes[0], slug: t.slug}
}

// after sets Retry-After to at least a second.
func (p problem) after(wait time.Duration) problem {
	p.retryAfter = max(wait, time.Second)
	return p
}

// forKey sets the outcome of a problem that a request may have before or after the
// claim of its key. An error of the provider always comes after the claim.
func (p problem) forKey(err error) problem {
	var keyed *keyedError
	var provider *orders.ProviderError
	if errors.As(err, &keyed) || errors.As(err, &provider) {
		p.Outcome = outcomeUnknown
	}
	return p
}

// forReads sets the detail of the response to a request that has no key: a GET, or an
// event.
func (p problem) forReads(text string) problem {
	p.readDetail = text
	return p
}

// header adds a header to the response.
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
