package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
)

// problemDoc documents a problem for people, in addition to its title and help: on its
// page under /problems/ and in openapi.yaml, whose problem schemas and examples
// make generate writes from it.
type problemDoc struct {
	effect  string   // what the request did, and whether money moved
	next    string   // what to do now, and with which key
	pending string   // the value of retry while the cause passes by itself; the response then has Retry-After
	members []string // extension members: "name", "name?" if optional, "name:Schema" if its schema has another name
	header  string   // a header line of the response worth showing
	see     []string // problems that are easily confused with this one

	// The example is the response to err, or the stored document, which package orders
	// writes.
	err    error
	stored string
}

// Effects that several problems share.
const (
	effectNone = "This request did nothing, and did not use its key. An earlier request with the same key is not affected."
	effectRead = "This request changed nothing."
)

// nextCorrect is the advice for a request that was not valid.
const nextCorrect = "Correct the request and send it with the same key. Never send it under another key: an earlier request with this key may have arrived, and another key is another payment."

// Ids in the examples.
const (
	exampleOrder       = "3eeb7e96-e59c-840f-9cb1-a089daba079f"
	exampleFailedOrder = "9b2d3f6e-5d0c-8a41-b1f7-0c6e2a9d8e15"
	exampleRequestID   = "3JQ6ZB7XKPLRWA4DM2VHSTN5EY"
)

// problemDocs returns the documentation of all problems by slug.
func problemDocs() map[string]problemDoc {
	return map[string]problemDoc{
		problemKeyMissing.slug: {
			effect: effectNone,
			next:   "Send the request with the key that you stored for it. If there is none yet, generate a key, such as a UUID, and store it before you send it. Every retry of this payment uses the same key.",
			see:    []string{problemKeyInvalid.slug},
			err:    errKeyMissing,
		},
		problemKeyInvalid.slug: {
			effect: effectNone,
			next:   "Send one header line with the key that you stored for this request. If the stored key itself does not have this form, it was never used: generate another key, such as a UUID, and store it first.",
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
			next:   "Look at the `Authorization` header and at the API key in it: was it revoked, or is it that of another server? With a valid API key of the same account, send the same request again, with the same `Idempotency-Key` if it had one. Another account is another scope of keys: there the same key would be another payment.",
			header: `WWW-Authenticate: Bearer realm="orders"`,
			see:    []string{problemNotFound.slug},
			err:    accounts.ErrUnauthorized,
		},
		problemNotFound.slug: {
			effect: effectRead,
			next:   "Look at the address and at whose API key is used. An account sees what is its own; that something belongs to another account is not said.",
			see:    []string{problemUnauthorized.slug, problemMethodNotAllowed.slug},
			err:    errNotFound,
		},
		problemMethodNotAllowed.slug: {
			effect: effectRead,
			next:   "Use one of the methods in `Allow`.",
			header: "Allow: GET, HEAD, POST, OPTIONS",
			see:    []string{problemNotFound.slug},
			err:    errMethodNotAllowed,
		},
		problemTooLarge.slug: {
			effect: effectNone,
			next:   "Make the body smaller, and send it with the same key. An order has at most 100 items and 20 notes in its `metadata`.",
			see:    []string{problemValidation.slug},
			err:    fmt.Errorf("%w: at most 64 KiB are taken here", errTooLarge),
		},
		problemUnsupportedMedia.slug: {
			effect: effectNone,
			next:   "Send the same body with `Content-Type: application/json`, with the same key.",
			see:    []string{problemMalformed.slug},
			err:    errUnsupportedMedia,
		},
		problemKeyInProgress.slug: {
			effect: "This request did nothing. The earlier one continues, and its outcome is not known yet.",
			next:   "Wait for as many seconds as `Retry-After` says, then send the same request with the same key: it gets the answer of the first, or goes on where that one broke off. Never send it under another key.",
			see:    []string{problemOutcomeUnknown.slug, problemKeyReused.slug},
			err:    idempotency.ErrInProgress,
		},
		problemKeyReused.slug: {
			effect: "This request did nothing. The first request with this key is not affected. `outcome` is `final` if that request is finished, otherwise `unknown`.",
			next:   "Was it meant as a retry? Then send what was sent the first time: the same address and the same JSON values. Is it another payment? Then it needs a key of its own.",
			see:    []string{problemKeyExpired.slug, problemKeyInProgress.slug},
			err:    idempotency.ErrKeyReused,
		},
		problemKeyExpired.slug: {
			effect:  "This request did nothing. The first request with this key is finished, and what it created is kept.",
			next:    "Read what the key made; its `status` says whether money moved. Only for another payment make a new key.",
			members: []string{"order_id", "refund?:ResourceLink"},
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
			err: &orders.ValidationError{Fields: []orders.FieldError{
				{Pointer: "/email", Code: orders.CodeInvalidFormat, Detail: "must be an email address such as ada@example.com"},
				{Pointer: "/items/0/quantity", Code: orders.CodeOutOfRange, Detail: "must be from 1 to 10000"},
			}},
		},
		problemNotRefundable.slug: {
			effect:  effectNone,
			next:    "If `retry` is `same-key`, the payment of the order is in progress: send the same request after as many seconds as `Retry-After` says. Otherwise read the order; its `status` and `amount_refunded` say why.",
			pending: retrySameKey,
			see:     []string{problemExceedsRemaining.slug, problemRefused.slug},
			err:     &orders.NotRefundableError{Status: orders.StatusRefunded},
		},
		problemExceedsRemaining.slug: {
			effect:  effectNone,
			next:    nextCorrect,
			members: []string{"remaining"},
			see:     []string{problemNotRefundable.slug, problemValidation.slug},
			err:     &orders.ExceedsRemainingError{Remaining: 2500},
		},
		problemDeclined.slug: {
			effect:  "The card was not charged, and never will be under this key. The order is kept as `payment_failed`.",
			next:    "Tell the customer, in the words of `detail`. Another try, with another card or with the same one later, is a new request and needs a new key.",
			members: []string{"code?", "decline_code?", "order_id"},
			see:     []string{problemRefused.slug, problemOutcomeUnknown.slug},
			stored:  `{"type":"/problems/payment-declined","title":"The payment was declined","status":402,"detail":"Your card has insufficient funds.","retry":"new-key","outcome":"final","code":"card_declined","decline_code":"insufficient_funds","order_id":"` + exampleFailedOrder + `"}`,
		},
		problemRefused.slug: {
			effect:  "The payment or refund was not made, and never will be under this key. The order or refund is kept as failed.",
			next:    "Read `code` and `detail`, correct the request and send it with a new key. The same request with the same key gets this answer again.",
			members: []string{"code", "order_id"},
			see:     []string{problemDeclined.slug, problemValidation.slug},
			stored:  `{"type":"/problems/payment-refused","title":"The payment provider refused the request","status":422,"detail":"No such PaymentMethod: 'pm_card_nobody'","retry":"new-key","outcome":"final","code":"resource_missing","order_id":"` + exampleFailedOrder + `"}`,
		},
		problemRateLimited.slug: {
			effect: "This request did nothing. If `outcome` is `unknown`, it waited for another request with the same key, which continues.",
			next:   "Send the same request after as many seconds as `Retry-After` says, with the same key if it had one. If this goes on, send fewer requests at once: what counts is how many are under way, not how many there are in an hour. Never send it under another key.",
			see:    []string{problemUnavailable.slug, problemKeyInProgress.slug},
			err:    limiter.ErrRateLimited,
		},
		problemInternal.slug: {
			effect: "The request may have claimed its key, and may have moved money. What it did is recorded and is not done again.",
			next:   "Send the same request with the same key again, a little later each time. If it goes on, ask for help and quote `request_id`. Never send it under another key.",
			see:    []string{problemUnavailable.slug, problemOutcomeUnknown.slug},
			err:    errors.New("something that nobody foresaw"),
		},
		problemOutcomeUnknown.slug: {
			effect: "The money may have moved, and if it did, it moved once.",
			next:   "Tell the customer neither that it worked nor that it failed. After as many seconds as `Retry-After` says, send the same request with the same key: it asks the provider what became of that one payment. If you do not come back, the server finds out by itself. Never send it under another key.",
			see:    []string{problemUnavailable.slug, problemKeyInProgress.slug},
			err:    &orders.ProviderError{Kind: orders.ErrOutcomeUnknown, RetryAfter: 2 * time.Second},
		},
		problemUnavailable.slug: {
			effect: "The request is not finished. If `outcome` is `none`, it was rejected before it claimed its key and did nothing. If `outcome` is `unknown`, it may have moved money, and at most once.",
			next:   "Send the same request after as many seconds as `Retry-After` says, with the same key if it had one: it goes on where it stopped, and no money moves twice. Never send it under another key.",
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
	p := problemOf(e.err)
	p.RequestID = exampleRequestID
	document, _ = json.Marshal(p) // see writeProblem
	return document, p.retryAfterSeconds()
}
