package api

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/payments"
)

// Errors of this package. Each has a row in problemRows.
var (
	errNoPage           = errors.New("no such page")
	errUnknownKey       = errors.New("no record of the key")
	errMethodNotAllowed = errors.New("method not allowed")
	errTooLarge         = errors.New("the body is too large")
	errUnsupportedMedia = errors.New("unsupported media type")
	errKeyMissing       = errors.New("no Idempotency-Key")
	errNotReady         = errors.New("not ready")
	errBodyCut          = errors.New("the body ended early")
	errEventBusy        = errors.New("another run holds the key of the event")
)

const (
	retrySameKey   = "same-key"
	outcomeNone    = "none"
	outcomeUnknown = "unknown"
	outcomeFinal   = "final"
)

// problemRows maps an error to its problem by the first row that matches. Without a detail, the
// error itself is shown.
var problemRows = []struct {
	err    error
	slug   string
	detail string
}{
	{accounts.ErrUnauthorized, "unauthorized", "Send a valid API key as a bearer token, in one Authorization header."},
	{errNoPage, "not-found", "There is no resource at this address."},
	{errUnknownKey, "not-found", "There is no record of this key, which proves nothing. Send its request with this key."},
	{httpjson.ErrNotFound, "not-found", "There is no such resource in this account."},
	{payments.ErrWebhooksOff, "not-found", "The server has no webhook secret, so the webhook is off."},
	{errMethodNotAllowed, "method-not-allowed", "The Allow header lists the methods that this resource supports."},
	{errTooLarge, "too-large", ""},
	{errUnsupportedMedia, "unsupported-media-type", "Send Content-Type: application/json, in UTF-8 and without a content encoding."},
	{errKeyMissing, "idempotency-key-missing", "Send an Idempotency-Key header of 16 to 255 visible ASCII characters."},
	{idempotency.ErrInvalidKey, "idempotency-key-invalid", "Send one Idempotency-Key header of 16 to 255 visible ASCII characters, raw or quoted."},
	{idempotency.ErrMalformed, "malformed-request", ""},
	{payments.ErrSignature, "malformed-request", "The Stripe-Signature header must sign this body with the endpoint's secret, at a time within five minutes of the server's clock."},
	{payments.ErrInvalidEvent, "malformed-request", "The signature is valid, but the body is not an event: a JSON object with id, object, type and data.object, whose numbers fit in a double. If it is a thin event, set the payload style of the endpoint to Snapshot in Stripe's dashboard."},
	{idempotency.ErrKeyReused, "idempotency-key-reused", "The body or the address differs from the key's first request."},
	{idempotency.ErrInProgress, "idempotency-key-in-progress", "Send the same request again shortly."},
	{httpjson.ErrOutcomeUnknown, "payment-outcome-unknown", "Send the same request with the same key to find out."},
	{httpjson.ErrProviderUnavailable, "temporarily-unavailable", "The payment provider did not accept the request."},
	{errBodyCut, "temporarily-unavailable", "The body ended early. Send the same request again."},
	{admission.ErrOverloaded, "temporarily-unavailable", "The server is overloaded. Send the same request again a little later."},
	{postgres.ErrUnavailable, "temporarily-unavailable", "Send the same request again."},
	{idempotency.ErrNewerVersion, "temporarily-unavailable", "Send the same request again."},
	{errEventBusy, "temporarily-unavailable", "Another request holds the key of the event. Deliver the event again."},
	{errNotReady, "temporarily-unavailable", "Send the same request again."},
	{idempotency.ErrNotFound, "temporarily-unavailable", "Send the same request again."}, // a failover has lost the row of its key
}

// keyedError wraps the error of a request that has looked up its key.
type keyedError struct {
	error
	created httpjson.Links // what a reaped key created
}

func (e *keyedError) Unwrap() error { return e.error }

type problem struct {
	httpjson.Problem
	RequestID string           `json:"request_id"`
	Errors    []httpjson.Field `json:"errors,omitempty"`
	OrderID   *uuid.UUID       `json:"order_id,omitempty"`
	Refund    *httpjson.Link   `json:"refund,omitempty"`
	Resource  *httpjson.Link   `json:"resource,omitempty"`
	Remaining int64            `json:"remaining,omitempty"`

	retryAfter int // seconds, 0 if there is none
}

func newProblem(slug, detail string) problem {
	t := problemTypeOf(slug)
	if t == nil {
		panic("api: there is no file problems/" + slug + ".md")
	}
	return problem{retryAfter: t.RetryAfter, Problem: httpjson.Problem{
		Type: "/problems/" + slug, Title: t.Title, Status: t.Status, Detail: detail, Retry: t.Retry, Outcome: t.Outcome[0],
	}}
}

// problemOf maps an error to its problem. The text of an unknown error is only logged.
func problemOf(err error) problem {
	if rejection, ok := errors.AsType[*httpjson.Rejection](err); ok {
		p := newProblem(rejection.Slug, rejection.Detail)
		p.OrderID = rejection.OrderID
		p.Remaining = rejection.Remaining
		if rejection.Soon {
			p.Retry, p.retryAfter = retrySameKey, 1
		}
		return p
	}
	if invalid, ok := errors.AsType[*httpjson.InvalidError](err); ok {
		p := newProblem("validation-failed", summary(invalid.Fields))
		p.Errors = invalid.Fields
		return p
	}
	if expired, ok := errors.AsType[*idempotency.KeyExpiredError](err); ok {
		return expiredProblem(err, expired.Key.Lost)
	}
	for _, row := range problemRows {
		if errors.Is(err, row.err) {
			p := newProblem(row.slug, cmp.Or(row.detail, err.Error()))
			provider, failed := errors.AsType[*httpjson.ProviderError](err)
			switch {
			case failed:
				p.retryAfter = max(int(math.Ceil(provider.RetryAfter.Seconds())), 1)
			case errors.Is(err, admission.ErrOverloaded):
				p.retryAfter = 1 + rand.IntN(3) //nolint:gosec // jitter, because rejections come in bursts
			case errors.Is(err, idempotency.ErrFinishedKeyReused):
				p.Outcome = outcomeFinal
			}
			return p
		}
	}
	return newProblem("internal-error", "Send the same request again.")
}

// expiredProblem names what an expired key was used for, unless the records are lost.
func expiredProblem(err error, lost bool) problem {
	p := newProblem("idempotency-key-expired", "An earlier request used the key. What it created or changed is named here, if it is known.")
	if lost {
		p.Detail = "The records of this key were lost, and an operator expired it. Ask the operator what became of the request."
	}
	if keyed, ok := errors.AsType[*keyedError](err); ok {
		p.Refund, p.Resource = keyed.created["refund"], keyed.created["resource"]
		if order := keyed.created["order"]; order != nil {
			p.OrderID = &order.ID
		}
	}
	return p
}

func summary(all []httpjson.Field) string {
	text := strings.TrimSpace(all[0].Pointer + " " + all[0].Detail)
	if n := len(all) - 1; n > 0 {
		text += fmt.Sprintf(" (errors lists %d more)", n)
	}
	return text
}

// forRequest sets the outcome, which is none only if the request has no key, or if its own lookup
// found the key unclaimed. Otherwise the key may have moved money.
func (p problem) forRequest(r *http.Request, err error) problem {
	hasKey := r.Method == http.MethodPost && r.URL.Path != WebhookPath && r.Header.Get("Idempotency-Key") != ""
	_, lookedUp := errors.AsType[*keyedError](err)
	switch {
	case p.Outcome != outcomeNone:
	case !lookedUp && hasKey, // an earlier request may have used the key
		lookedUp && p.Status == http.StatusServiceUnavailable, // the run was interrupted
		// A key's row may be lost, its request may be on its way, or a proxy may have changed the address.
		p.Status == http.StatusNotFound && strings.HasPrefix(r.URL.Path, keyAddress):
		p.Outcome = outcomeUnknown
	}
	return p
}
