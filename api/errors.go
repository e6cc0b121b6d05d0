package api

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// keyedError is an error of a request that looked up its key.
type keyedError struct {
	error
	created *orders.Resource // by a reaped key of a registered operation
}

func (e *keyedError) Unwrap() error { return e.error }

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
	headers    map[string]string
}

// Values of Retry-After if the cause of the problem has none.
const (
	inProgressRetryAfter  = time.Second     // most orders take less
	unavailableRetryAfter = 2 * time.Second // a restart of the database, say
)

// overloadRetryAfter has jitter, because rejections come in bursts: 1 to 3 seconds.
func overloadRetryAfter() time.Duration {
	return time.Duration(1+rand.IntN(3)) * time.Second //nolint:gosec // not a secret
}

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
		p.headers = map[string]string{"WWW-Authenticate": `Bearer realm="orders"`}
		if errors.Is(err, errInvalidToken) { // without a token no error (RFC 6750, 3.1)
			p.headers["WWW-Authenticate"] += `, error="invalid_token"`
		}
		return p
	case errors.Is(err, errNoPage):
		return problemNotFound.detail("There is no resource at this address.")
	case errors.Is(err, errNotFound), errors.Is(err, orders.ErrNotFound):
		return problemNotFound.detail("There is no such resource in this account.")
	case errors.Is(err, errMethodNotAllowed):
		return problemMethodNotAllowed.detail("The Allow header lists the methods that this resource supports.")
	case errors.Is(err, errTooLarge):
		return problemTooLarge.detail(err.Error())
	case errors.Is(err, errUnsupportedMedia):
		p := problemUnsupportedMedia.detail("Send Content-Type: application/json, in UTF-8 and without a content encoding.")
		p.headers = map[string]string{"Accept": "application/json"}
		if errors.Is(err, errUnsupportedCoding) {
			p.headers["Accept-Encoding"] = "identity"
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
		return problemUnavailable.detail("The body ended early. Send the same request again, with the same key.").after(unavailableRetryAfter)
	case errors.Is(err, limiter.ErrRateLimited):
		return problemRateLimited.detail("Send the same request again a little later, with the same key.").after(overloadRetryAfter())
	case errors.Is(err, limiter.ErrOverloaded):
		return problemUnavailable.detail("The server is overloaded. Send the same request again a little later, with the same key.").after(overloadRetryAfter())
	case errors.Is(err, postgres.ErrUnavailable), errors.Is(err, idempotency.ErrNewerVersion), errors.Is(err, errNotReady):
		return problemUnavailable.detail("Send the same request again, with the same key.").after(unavailableRetryAfter)
	default:
		return problemInternal.detail("Send the same request again, with the same key.")
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
	return problem{Type: "/problems/" + t.Slug, Title: t.Title, Status: t.Status, Detail: text, Retry: t.Retry, Outcome: t.Outcomes[0], slug: t.Slug}
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
	if !hasKey {
		p.Detail = strings.Replace(p.Detail, ", with the same key", "", 1)
	}
	keyed, lookedUp := errors.AsType[*keyedError](err)
	if lookedUp && keyed.created != nil {
		p.Detail, p.Resource = "The key created the resource in resource.", keyed.created
	}
	interrupted := p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
	if p.Outcome == outcomeNone && (lookedUp && interrupted || !lookedUp && hasKey) {
		p.Outcome = outcomeUnknown
	}
	return p
}

// retryAfterSeconds is the value of the Retry-After header, rounded up to seconds.
func (p problem) retryAfterSeconds() int { return int(math.Ceil(p.retryAfter.Seconds())) }
