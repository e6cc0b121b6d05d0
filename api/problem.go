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
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/validation"
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

// keyedError is of a request that looked up its key.
type keyedError struct {
	error
	created operations.Links // what a reaped key created
}

func (e *keyedError) Unwrap() error { return e.error }

type problem struct {
	operations.Problem
	RequestID string               `json:"request_id"`
	Errors    []validation.Field   `json:"errors,omitempty"`
	OrderID   *uuid.UUID           `json:"order_id,omitempty"`
	Refund    *operations.Resource `json:"refund,omitempty"`
	Resource  *operations.Resource `json:"resource,omitempty"`
	Remaining int64                `json:"remaining,omitempty"`

	slug       string
	retryAfter int // seconds, 0 if there is none
	headers    map[string]string
}

// Values of Retry-After if the cause of the problem has none.
const (
	inProgressRetryAfter  = time.Second
	unavailableRetryAfter = 2 * time.Second
)

// overloadRetryAfter has jitter, because rejections come in bursts.
func overloadRetryAfter() time.Duration {
	return time.Duration(1+rand.IntN(3)) * time.Second //nolint:gosec // not a secret
}

// problemOf maps an error to its problem. The text of an unknown error is only logged.
func problemOf(err error) problem {
	var (
		invalid  *validation.Error
		expired  *idempotency.KeyExpiredError
		provider *operations.ProviderError
	)
	if p, ok := orderProblem(err); ok {
		return p
	}
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
	case errors.Is(err, errNotFound), errors.Is(err, operations.ErrNotFound):
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
	case errors.As(err, &expired) && expired.Lost:
		return problemKeyExpired.detail("The records of this key were lost, and an operator expired it. Ask the operator what became of the request.")
	case errors.As(err, &expired):
		return problemKeyExpired.detail("The key belongs to an earlier request of another operation.").created(err)
	case errors.As(err, &provider) && errors.Is(provider.Kind, operations.ErrOutcomeUnknown):
		return problemOutcomeUnknown.detail("Send the same request with the same key to find out.").after(provider.RetryAfter)
	case errors.As(err, &provider):
		return problemUnavailable.detail("The payment provider did not accept the request.").after(provider.RetryAfter)
	case errors.Is(err, errBodyCut):
		return problemUnavailable.detail("The body ended early. Send the same request again, with the same key.").after(unavailableRetryAfter)
	case errors.Is(err, admission.ErrRateLimited):
		return problemRateLimited.detail("Send the same request again a little later, with the same key.").after(overloadRetryAfter())
	case errors.Is(err, admission.ErrOverloaded):
		return problemUnavailable.detail("The server is overloaded. Send the same request again a little later, with the same key.").after(overloadRetryAfter())
	case errors.Is(err, postgres.ErrUnavailable), errors.Is(err, idempotency.ErrNewerVersion), errors.Is(err, errNotReady):
		return problemUnavailable.detail("Send the same request again, with the same key.").after(unavailableRetryAfter)
	default:
		return problemInternal.detail("Send the same request again, with the same key.")
	}
}

func (p problem) created(err error) problem {
	keyed, _ := errors.AsType[*keyedError](err)
	if keyed == nil {
		return p
	}
	if order := keyed.created["order"]; order != nil {
		p.Detail, p.OrderID = "The key created the order in order_id.", &order.ID
	}
	if p.Refund = keyed.created["refund"]; p.Refund != nil {
		p.Detail = "The key created the refund in refund, of the order in order_id."
	}
	if p.Resource = keyed.created[operations.MemberResource]; p.Resource != nil {
		p.Detail = "The key created the resource in resource."
	}
	return p
}

func summary(all []validation.Field) string {
	text := strings.TrimSpace(all[0].Pointer + " " + all[0].Detail)
	if n := len(all) - 1; n > 0 {
		text += fmt.Sprintf(" (errors lists %d more)", n)
	}
	return text
}

func (t problemType) detail(text string) problem {
	p := operations.Problem{Type: "/problems/" + t.Slug, Title: t.Title, Status: t.Status, Detail: text, Retry: t.Retry, Outcome: t.Outcomes[0]}
	return problem{Problem: p, slug: t.Slug}
}

func (p problem) after(wait time.Duration) problem {
	p.retryAfter = max(int(math.Ceil(wait.Seconds())), 1)
	return p
}

// forRequest sets the outcome, which is none only if the request has no key, or if its lookup
// found the key unclaimed. Otherwise the key may have moved money.
func (p problem) forRequest(r *http.Request, err error) problem {
	hasKey := r.Method == http.MethodPost && r.URL.Path != WebhookPath && r.Header.Get("Idempotency-Key") != ""
	if !hasKey {
		p.Detail = strings.Replace(p.Detail, ", with the same key", "", 1)
	}
	if errors.Is(err, errNoPage) && strings.HasPrefix(r.URL.Path, keyAddress) {
		p.Outcome = outcomeUnknown // a proxy may have changed the address of a used key
	}
	_, lookedUp := errors.AsType[*keyedError](err)
	interrupted := p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
	if p.Outcome == outcomeNone && (lookedUp && interrupted || !lookedUp && hasKey) {
		p.Outcome = outcomeUnknown
	}
	return p
}
