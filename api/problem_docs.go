package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
)

// problemDoc documents a problem on its page and in openapi.yaml, whose problem schemas
// and examples are generated from it.
type problemDoc struct {
	effect  string   // what the request did, and whether money moved
	next    string   // what to do now, and with which key
	pending string   // the value of retry while the cause passes by itself; the response then has Retry-After
	members []string // extension members: "name", "name?" if optional, "name:Schema" if its schema has another name
	header  string   // a header line of the response worth showing
	see     []string // problems that are easily confused with this one

	// The example is the response to err, or the stored document.
	err    error
	noKey  bool // the request of the example has no Idempotency-Key
	stored string
}

// Effects that several problems share.
const (
	effectNone = "This request changed nothing and did not use its key. An earlier request with the same key is not affected."
	effectRead = "This request changed nothing."
)

// nextCorrect is the advice for a request that was not valid.
const nextCorrect = "Correct the request and send it again. If it has an `Idempotency-Key`, keep the key: an earlier request with it may have moved money, and a new key would be another payment."

// Ids in the examples.
const (
	exampleOrder       = "3eeb7e96-e59c-840f-9cb1-a089daba079f"
	exampleFailedOrder = "9b2d3f6e-5d0c-8a41-b1f7-0c6e2a9d8e15"
	exampleKey         = "8f14e45f-ceea-467f-a9d4-1f6b7c3e2d10"
	exampleRequestID   = "3JQ6ZB7XKPLRWA4DM2VHSTN5EY"
)

func problemDocs() map[string]problemDoc {
	return map[string]problemDoc{
		problemKeyMissing.slug: {
			effect: effectNone,
			next:   "Send the request with the key that you stored for it. If there is none yet, generate a key, such as a UUID, and store it before you send the request. Every retry uses the same key.",
			see:    []string{problemKeyInvalid.slug},
			err:    errKeyMissing,
			noKey:  true,
		},
		problemKeyInvalid.slug: {
			effect: effectNone,
			next:   "Send one header line with the key that you stored for this request. If the stored key itself does not have this form, it was never used: replace it by a new one, such as a UUID, and store that first.",
			see:    []string{problemKeyMissing.slug},
			err:    idempotency.ErrInvalidKey,
		},
		problemMalformed.slug: {
			effect: effectNone,
			next:   nextCorrect,
			see:    []string{problemValidation.slug, problemUnsupportedMedia.slug},
			err:    fmt.Errorf("%w: the body must be a JSON object", idempotency.ErrMalformed),
		},
		problemUnauthorized.slug: {
			effect: effectNone,
			next:   "Check whether the API key was revoked, or belongs to another server. Send the same request with a valid API key of the same account, and keep the `Idempotency-Key`. Idempotency keys are scoped to the account: in another account, the same key would be another payment.",
			header: `WWW-Authenticate: Bearer realm="orders"`,
			see:    []string{problemNotFound.slug},
			err:    accounts.ErrUnauthorized,
			noKey:  true,
		},
		problemNotFound.slug: {
			effect: effectRead,
			next:   "Check the address, and check which account the API key belongs to. An account can access only its own resources.",
			see:    []string{problemUnauthorized.slug, problemMethodNotAllowed.slug},
			err:    errNotFound,
			noKey:  true,
		},
		problemMethodNotAllowed.slug: {
			effect: effectRead,
			next:   "Use one of the methods in the `Allow` header.",
			header: "Allow: GET, HEAD, POST, OPTIONS",
			see:    []string{problemNotFound.slug},
			err:    errMethodNotAllowed,
			noKey:  true,
		},
		problemTooLarge.slug: {
			effect: effectNone,
			next:   "Send a smaller body, with the same key. An order has at most 100 items and 20 `metadata` entries.",
			see:    []string{problemValidation.slug},
			err:    fmt.Errorf("%w: at most 64 KiB are allowed here", errTooLarge),
		},
		problemUnsupportedMedia.slug: {
			effect: effectNone,
			next:   "Send the same body with `Content-Type: application/json`, with the same key.",
			see:    []string{problemMalformed.slug},
			err:    errUnsupportedMedia,
		},
		problemKeyInProgress.slug: {
			effect: "This request changed nothing. The earlier request continues, and its outcome is not known yet.",
			next:   "Send the same request with the same key after `Retry-After` seconds. It gets the response of the earlier request, or resumes it if it was interrupted. Do not use another key: that would be another payment.",
			see:    []string{problemOutcomeUnknown.slug, problemKeyReused.slug},
			err:    idempotency.ErrInProgress,
		},
		problemKeyReused.slug: {
			effect: "This request changed nothing. The first request with this key is not affected: `outcome` is `final` if it is finished, otherwise `unknown`.",
			next:   "To retry the first request, send exactly what it sent: the same address and the same JSON values. A different payment needs a key of its own.",
			see:    []string{problemKeyExpired.slug, problemKeyInProgress.slug},
			err:    idempotency.ErrKeyReused,
		},
		problemKeyExpired.slug: {
			effect:  "This request changed nothing. The first request with this key is finished, and what it created still exists.",
			next:    "Read the order, the refund or the resource: its `status` states whether money moved. Use a new key only for another payment.",
			members: []string{"order_id?", "refund?:ResourceLink", "resource?:ResourceLink"},
			see:     []string{problemKeyReused.slug},
			err: &idempotency.KeyExpiredError{Key: idempotency.Status{
				Operation: "create_refund", Path: "/v1/orders/" + exampleOrder + "/refunds",
			}},
		},
		problemValidation.slug: {
			effect:  effectNone,
			next:    nextCorrect,
			members: []string{"errors"},
			see:     []string{problemMalformed.slug, problemRefused.slug},
			err: &keyedError{error: &orders.ValidationError{Fields: []orders.FieldError{
				{Pointer: "/items/0/quantity", Code: orders.CodeOutOfRange, Detail: "must be from 1 to 10000"},
				{Pointer: "/email", Code: orders.CodeInvalidFormat, Detail: "must be an email address such as ada@example.com"},
			}}},
		},
		problemNotRefundable.slug: {
			effect:  effectNone,
			next:    "If `retry` is `same-key`, the payment of the order is in progress: send the same request after `Retry-After` seconds. Otherwise read the order: its `status` and `amount_refunded` state the reason.",
			pending: retrySameKey,
			see:     []string{problemExceedsRemaining.slug, problemRefused.slug},
			err:     &keyedError{error: &orders.NotRefundableError{Status: orders.StatusRefunded}},
		},
		problemExceedsRemaining.slug: {
			effect:  effectNone,
			next:    nextCorrect,
			members: []string{"remaining"},
			see:     []string{problemNotRefundable.slug, problemValidation.slug},
			err:     &keyedError{error: &orders.ExceedsRemainingError{Remaining: 2500}},
		},
		problemDeclined.slug: {
			effect:  "The card was not charged and never will be under this key. The order exists with the status `payment_failed`.",
			next:    "Show `detail` to the customer. Another attempt, with another card or later with the same one, is a new request and needs a new key. The code `payment_intent_authentication_failure` means that the customer did not approve the payment. The code `authentication_required` means that an `off_session` payment needs that approval: send the new request without `off_session`, while the customer is present.",
			members: []string{"code?", "decline_code?", "order_id"},
			see:     []string{problemRefused.slug, problemOutcomeUnknown.slug},
			stored:  `{"type":"/problems/payment-declined","title":"The payment was declined","status":402,"detail":"Your card has insufficient funds.","retry":"new-key","outcome":"final","code":"card_declined","decline_code":"insufficient_funds","order_id":"` + exampleFailedOrder + `"}`,
		},
		problemRefused.slug: {
			effect:  "The payment or the refund was not made and never will be under this key. The order or the refund exists with a failed status.",
			next:    "Read `code` and `detail`, correct the request and send it with a new key. If `code` is `charge_window_over`, the order was too old to be charged, or its customer did not approve the payment in time: ask the customer first. The same request with the same key gets this response again.",
			members: []string{"code", "order_id"},
			see:     []string{problemDeclined.slug, problemValidation.slug},
			stored:  `{"type":"/problems/payment-refused","title":"The payment provider refused the request","status":422,"detail":"No such PaymentMethod: 'pm_card_nobody'","retry":"new-key","outcome":"final","code":"resource_missing","order_id":"` + exampleFailedOrder + `"}`,
		},
		problemRateLimited.slug: {
			effect: "This request changed nothing. The server did not look up its key, so an earlier request with the same key may be in progress or finished.",
			next:   "Send the same request, with the same key, after `Retry-After` seconds. If this persists, send fewer requests at the same time: the limit is on concurrent requests, not on a rate. Do not use another key: that would be another payment.",
			see:    []string{problemUnavailable.slug, problemKeyInProgress.slug},
			err:    limiter.ErrRateLimited,
		},
		problemInternal.slug: {
			effect: "The request may have claimed its key and moved money. Its progress is stored, and no step is executed twice.",
			next:   "Send the same request, with the same key, with exponential backoff. If this persists, contact support and quote `request_id`. Do not use another key: that would be another payment.",
			see:    []string{problemUnavailable.slug, problemOutcomeUnknown.slug},
			err:    errors.New("an unexpected error"),
		},
		problemOutcomeUnknown.slug: {
			effect: "Money may have moved, at most once.",
			next:   "Do not tell the customer that the payment succeeded or failed. Send the same request with the same key after `Retry-After` seconds: the server then queries the provider for that payment. If you stop, the server finishes the request later. Do not use another key: that would be another payment.",
			see:    []string{problemUnavailable.slug, problemKeyInProgress.slug},
			err:    &orders.ProviderError{Kind: orders.ErrOutcomeUnknown, RetryAfter: 2 * time.Second},
		},
		problemUnavailable.slug: {
			effect: "The request is not finished. If `outcome` is `unknown`, this request or an earlier one with the same key may have moved money, at most once.",
			next:   "Send the same request, with the same key, after `Retry-After` seconds. It resumes where it stopped, and money never moves twice. Do not use another key: that would be another payment.",
			see:    []string{problemOutcomeUnknown.slug, problemInternal.slug},
			err:    postgres.ErrUnavailable,
		},
	}
}

// example returns the document of the example and its Retry-After, 0 if there is none.
func (e problemDoc) example() (document []byte, retryAfter int) {
	if e.stored != "" {
		return []byte(e.stored), 0
	}
	request := &http.Request{Method: http.MethodPost, URL: &url.URL{}, Header: http.Header{}}
	if !e.noKey {
		request.Header.Set("Idempotency-Key", exampleKey)
	}
	p := problemOf(e.err).forRequest(request, e.err)
	p.RequestID = exampleRequestID
	document, _ = json.Marshal(p) // see writeProblem
	return document, p.retryAfterSeconds()
}
