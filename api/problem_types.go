package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/validation"
	"example.com/orders-api/orders"
)

// problemType is for the page, the schema and the examples of a problem.
type problemType struct {
	Slug     string
	Status   int
	Retry    string
	Outcomes []string // possible values of outcome; the first one is the default
	Title    string
	Help     string   // what happened
	Effect   string   // of the request; empty if it did not use its key
	Next     string   // what to do now, and with which key
	See      []string // slugs
	Also     string   // another value of retry
	AlsoIf   string   // when it is Also
	members  []string // extension members: "name", "name?" if optional, "name:Schema" if its schema has another name
	header   string   // a header line of the example

	err    error
	noKey  bool // the request of the example has no Idempotency-Key
	Stored string
}

const (
	retrySameKey   = "same-key"
	retryCorrected = "corrected"
	retryNewKey    = "new-key"
	retryNever     = "never"
)

const (
	outcomeNone    = "none"
	outcomeUnknown = "unknown"
	outcomeFinal   = "final"
)

var (
	onlyNone       = []string{outcomeNone}
	onlyUnknown    = []string{outcomeUnknown}
	onlyFinal      = []string{outcomeFinal}
	noneOrUnknown  = []string{outcomeNone, outcomeUnknown}  // see problem.forRequest
	unknownOrFinal = []string{outcomeUnknown, outcomeFinal} // final if the first request is finished
)

const nextCorrect = "Correct the request and send it again, with the same key if it has one: a new key would be another payment, and an earlier request with this one may have moved money."

const (
	exampleOrder       = "3eeb7e96-e59c-840f-9cb1-a089daba079f"
	exampleFailedOrder = "9b2d3f6e-5d0c-8a41-b1f7-0c6e2a9d8e15"
	exampleRefund      = "244f7315-c43c-889d-b7ef-a5cc5dc7aeec"
)

// Package orders writes the two problems that are stored.
var (
	problemKeyMissing = problemType{
		Slug: "idempotency-key-missing", Status: http.StatusBadRequest, Retry: retryCorrected, Outcomes: onlyNone,
		Title: "The Idempotency-Key header is missing",
		Help:  "Every POST requires an `Idempotency-Key` header: 16 to 255 visible ASCII characters, such as a UUID.",
		Next:  "Send the request with the key that you stored for it. If there is none yet, generate one, and store it before you send the request.",
		See:   []string{"idempotency-key-invalid"}, noKey: true, err: errKeyMissing,
	}
	problemKeyInvalid = problemType{
		Slug: "idempotency-key-invalid", Status: http.StatusBadRequest, Retry: retryCorrected, Outcomes: onlyUnknown,
		Title: "The Idempotency-Key header is not valid",
		Help:  "An `Idempotency-Key` is one header line of 16 to 255 visible ASCII characters, raw or as a quoted String of RFC 9651.",
		Next:  "Send one header line with the key that you stored for this request. If the stored key itself has another form, it was never used, so replace it by a new one, and store that first.",
		See:   []string{"idempotency-key-missing"}, err: idempotency.ErrInvalidKey,
	}
	problemMalformed = problemType{
		Slug: "malformed-request", Status: http.StatusBadRequest, Retry: retryCorrected, Outcomes: noneOrUnknown,
		Title: "The request is malformed",
		Help:  "The body must be one JSON object in UTF-8, without duplicate members and with at most 2,048 names and values. A number has at most 100 characters, an absolute value that is 0 or from 1e-30 to 2^53 − 1, and digits that an IEEE 754 double keeps. The webhook accepts only snapshot events that the payment provider has signed.",
		Next:  nextCorrect,
		See:   []string{"validation-failed", "unsupported-media-type"}, err: fmt.Errorf("%w: the body must be a JSON object", idempotency.ErrMalformed),
	}
	problemUnauthorized = problemType{
		Slug: "unauthorized", Status: http.StatusUnauthorized, Retry: retryCorrected, Outcomes: noneOrUnknown,
		Title: "The API key is missing or not valid",
		Help:  "A request below `/v1` requires an API key: one header line `Authorization: Bearer <key>`.",
		Next:  "Check whether the API key was revoked, or belongs to another server. Send the same request with a valid API key of the same account, and keep the `Idempotency-Key`, which in another account would be another payment.",
		See:   []string{"not-found"}, header: `WWW-Authenticate: Bearer realm="orders"`, noKey: true, err: accounts.ErrUnauthorized,
	}
	problemDeclined = problemType{
		Slug: orders.SlugPaymentDeclined, Status: http.StatusPaymentRequired, Retry: retryNewKey, Outcomes: onlyFinal,
		Title:  "The payment was declined",
		Help:   "The bank or the provider declined the payment; `code` and `decline_code` state the reason. This is the final response of the key.",
		Effect: "The card was not charged and never will be under this key. The order exists with the status `payment_failed`.",
		Next:   "Show `detail` to the customer, but never `provider_message`, which is the provider's own text, or `decline_code`. Another attempt, with another card or later with the same one, needs a new key. The code `payment_intent_authentication_failure` means that the customer did not approve the payment, and `authentication_required` that an `off_session` payment needs this approval: send the new request without `off_session`, while the customer is present.",
		See:    []string{orders.SlugPaymentRefused, "payment-outcome-unknown"}, members: []string{"code?", "decline_code?", "provider_message?", "order_id"},
		Stored: `{"type":"/problems/payment-declined","title":"The payment was declined","status":402,"detail":"The card has insufficient funds. Please use another card.","retry":"new-key","outcome":"final","code":"card_declined","decline_code":"insufficient_funds","provider_message":"Your card has insufficient funds.","order_id":"` + exampleFailedOrder + `"}`,
	}
	problemNotFound = problemType{
		Slug: "not-found", Status: http.StatusNotFound, Retry: retryNever, Outcomes: noneOrUnknown,
		Title:  "The resource does not exist",
		Help:   "The address is wrong, or the resource belongs to another account. The response is the same for both.",
		Effect: "This request changed nothing.",
		Next:   "Check the address, and the account of the API key, because an account can access only its own resources.",
		See:    []string{"unauthorized", "method-not-allowed"}, noKey: true, err: errNotFound,
	}
	problemMethodNotAllowed = problemType{
		Slug: "method-not-allowed", Status: http.StatusMethodNotAllowed, Retry: retryNever, Outcomes: noneOrUnknown,
		Title:  "The method is not allowed",
		Help:   "The resource does not support this method, only those in the `Allow` header.",
		Effect: "This request changed nothing.",
		Next:   "Use one of the methods in the `Allow` header.",
		See:    []string{"not-found"}, header: "Allow: GET, HEAD, POST, OPTIONS", noKey: true, err: errMethodNotAllowed,
	}
	problemKeyInProgress = problemType{
		Slug: "idempotency-key-in-progress", Status: http.StatusConflict, Retry: retrySameKey, Outcomes: onlyUnknown,
		Title:  "A request with this Idempotency-Key is in progress",
		Help:   "An earlier request with the same key is in progress, or its server stopped a moment ago.",
		Effect: "This request changed nothing. The earlier request continues, and its outcome is not known yet.",
		Next:   "Send the same request with the same key after `Retry-After` seconds. It gets the response of the earlier request, or resumes it if it was interrupted. Do not use another key: that would be another payment.",
		See:    []string{"payment-outcome-unknown", "idempotency-key-reused"}, err: idempotency.ErrInProgress,
	}
	problemTooLarge = problemType{
		Slug: "too-large", Status: http.StatusRequestEntityTooLarge, Retry: retryCorrected, Outcomes: noneOrUnknown,
		Title: "The request body is too large",
		Help:  "A request body has at most 64 KiB, an event of the payment provider at most 256 KiB. The server did not read the rest of this body and closed the connection.",
		Next:  "Send a smaller body, with the same key. An order has at most 100 items and 20 `metadata` entries.",
		See:   []string{"validation-failed"}, err: fmt.Errorf("%w: at most 64 KiB are allowed here", errTooLarge),
	}
	problemUnsupportedMedia = problemType{
		Slug: "unsupported-media-type", Status: http.StatusUnsupportedMediaType, Retry: retryCorrected, Outcomes: noneOrUnknown,
		Title: "The media type is not supported",
		Help:  "A request body is JSON in UTF-8 with `Content-Type: application/json` and without a content encoding.",
		Next:  "Send the same body with `Content-Type: application/json`, with the same key.",
		See:   []string{"malformed-request"}, err: errUnsupportedMedia,
	}
	problemKeyReused = problemType{
		Slug: "idempotency-key-reused", Status: http.StatusUnprocessableEntity, Retry: retryNever, Outcomes: unknownOrFinal,
		Title:  "The Idempotency-Key was used for another request",
		Help:   "The key belongs to an earlier request with another body or another address. A key identifies one request permanently.",
		Effect: "This request changed nothing. The first request with this key is not affected: `outcome` is `final` if it is finished, otherwise `unknown`.",
		Next:   "To retry the first request, send exactly what it sent: the same address and the same JSON values. A different payment needs a key of its own.",
		See:    []string{"idempotency-key-expired", "idempotency-key-in-progress"}, err: idempotency.ErrKeyReused,
	}
	problemKeyExpired = problemType{
		Slug: "idempotency-key-expired", Status: http.StatusUnprocessableEntity, Retry: retryNever, Outcomes: onlyFinal,
		Title:  "The Idempotency-Key has expired",
		Help:   "An earlier request with this key is finished, and its response is no longer stored. It created the order in `order_id`, the refund in `refund`, or the resource in `resource`. Without these members, the records of the request were lost, and an operator expired the key. A key never executes twice.",
		Effect: "This request changed nothing, and what the response names still exists.",
		Next:   "Read the order, the refund or the resource: its `status` states whether money moved. If the response names nothing, ask the operator, because the card may have been charged. Use a new key only for another payment.",
		See:    []string{"idempotency-key-reused"}, members: []string{"order_id?", "refund?:ResourceLink", "resource?:ResourceLink"},
		err: &keyedError{error: &idempotency.KeyExpiredError{}, created: operations.Links{
			"order":  {ID: uuid.MustParse(exampleOrder)},
			"refund": {ID: uuid.MustParse(exampleRefund), Href: "/v1/orders/" + exampleOrder + "/refunds/" + exampleRefund},
		}},
	}
	problemValidation = problemType{
		Slug: "validation-failed", Status: http.StatusUnprocessableEntity, Retry: retryCorrected, Outcomes: noneOrUnknown,
		Title: "The request is not valid",
		Help:  "The request is well-formed, but some of its values are not valid. `errors` lists them, each with a JSON pointer, a code and a text.",
		Next:  nextCorrect,
		See:   []string{"malformed-request", orders.SlugPaymentRefused}, members: []string{"errors"},
		err: &keyedError{error: &validation.Error{Fields: []validation.Field{
			{Pointer: "/items/0/quantity", Code: validation.CodeOutOfRange, Detail: "must be from 1 to 10000"},
			{Pointer: "/email", Code: validation.CodeInvalidFormat, Detail: "must be an email address such as ada@example.com"},
		}}},
	}
	problemOrderExists = problemType{
		Slug: "order-exists", Status: http.StatusUnprocessableEntity, Retry: retryNever, Outcomes: onlyNone,
		Title: "An order with this reference exists",
		Help:  "The order in `order_id` has the same `reference`, and its payment is in progress or succeeded. A purchase is charged once, whatever the key.",
		Next:  "Read the order in `order_id`. If its amount and items are those of this purchase, its `status` states whether it is paid; otherwise a restored backup may have reused the reference. If its payment fails, send this request again. Only another purchase may have another reference.",
		See:   []string{"idempotency-key-expired", orders.SlugPaymentDeclined}, members: []string{"order_id"},
		err: &keyedError{error: &orders.OrderExistsError{OrderID: uuid.MustParse(exampleOrder)}},
	}
	problemNotRefundable = problemType{
		Slug: "order-not-refundable", Status: http.StatusUnprocessableEntity, Retry: retryNever, Outcomes: onlyNone,
		Title: "The order cannot be refunded",
		Help:  "Nothing can be refunded: the payment of the order is in progress, has failed, or was refunded in full. Refunds in progress count as refunded.",
		Next:  "If `retry` is `same-key`, the payment of the order is in progress: send the same request after `Retry-After` seconds. Otherwise read the order: its `status` and `amount_refunded` state the reason.",
		See:   []string{"refund-exceeds-remaining", orders.SlugPaymentRefused}, Also: retrySameKey, AlsoIf: "while its payment is in progress", err: &keyedError{error: &orders.NotRefundableError{Status: orders.StatusRefunded}},
	}
	problemExceedsRemaining = problemType{
		Slug: "refund-exceeds-remaining", Status: http.StatusUnprocessableEntity, Retry: retryCorrected, Outcomes: onlyNone,
		Title: "The refund exceeds what remains of the order",
		Help:  "The amount exceeds what remains of the order, which is `remaining`. Refunds in progress count as refunded.",
		Next:  nextCorrect,
		See:   []string{"order-not-refundable", "validation-failed"}, members: []string{"remaining"}, err: &keyedError{error: &orders.ExceedsRemainingError{Remaining: 2500}},
	}
	problemRefused = problemType{
		Slug: orders.SlugPaymentRefused, Status: http.StatusUnprocessableEntity, Retry: retryNewKey, Outcomes: onlyFinal,
		Title:  "The payment provider refused the request",
		Help:   "The provider rejected the request, for example because the payment method does not exist, or because the charge is already refunded there. This is the final response of the key.",
		Effect: "The payment or the refund was not made and never will be under this key. The order or the refund exists with a failed status.",
		Next:   "If `retry` is `never`, no other key can help, for example because the charge is disputed. Otherwise read `code` and `provider_message`, correct the request and send it with a new key. `detail` is for the customer. If `code` is `charge_window_over`, the order was too old to be charged, or its customer did not approve the payment in time: ask the customer first.",
		See:    []string{orders.SlugPaymentDeclined, "validation-failed"}, members: []string{"code", "provider_message?", "order_id"}, Also: retryNever,
		AlsoIf: "for `charge_already_refunded`, `charge_disputed`, `charge_not_refundable` and `refund_disputed_payment`",
		Stored: `{"type":"/problems/payment-refused","title":"The payment provider refused the request","status":422,"detail":"The payment details cannot be used. Please enter them again.","retry":"new-key","outcome":"final","code":"resource_missing","provider_message":"No such PaymentMethod: 'pm_card_nobody'","order_id":"` + exampleFailedOrder + `"}`,
	}
	problemRateLimited = problemType{
		Slug: "rate-limited", Status: http.StatusTooManyRequests, Retry: retrySameKey, Outcomes: noneOrUnknown,
		Title:  "Too many requests of this account are in progress",
		Help:   "The server is overloaded, and this account already has its share of the requests in progress.",
		Effect: "This request changed nothing. The server did not look up its key, so an earlier request with the same key may be in progress or finished.",
		Next:   "Send the same request, with the same key, after `Retry-After` seconds. If this persists, send fewer requests at the same time: the limit is on concurrent requests, not on a rate. Do not use another key: that would be another payment.",
		See:    []string{"temporarily-unavailable", "idempotency-key-in-progress"}, err: admission.ErrRateLimited,
	}
	problemInternal = problemType{
		Slug: "internal-error", Status: http.StatusInternalServerError, Retry: retrySameKey, Outcomes: onlyUnknown,
		Title:  "Internal error",
		Help:   "An error of the server. Its cause is in the server's log, under `request_id`.",
		Effect: "The request may have claimed its key and moved money. Its progress is stored, and no step is executed twice.",
		Next:   "Send the same request, with the same key, with exponential backoff. If this persists, contact support and quote `request_id`. Do not use another key: that would be another payment.",
		See:    []string{"temporarily-unavailable", "payment-outcome-unknown"}, err: errors.New("an unexpected error"),
	}
	problemOutcomeUnknown = problemType{
		Slug: "payment-outcome-unknown", Status: http.StatusServiceUnavailable, Retry: retrySameKey, Outcomes: onlyUnknown,
		Title:  "The outcome is not known yet",
		Help:   "The provider has not confirmed the outcome, so the request may have taken effect: an order may be charged, or a refund made.",
		Effect: "The request took effect at most once, and may have moved money.",
		Next:   "Do not tell the customer that the request succeeded or failed. Send the same request with the same key after `Retry-After` seconds, because the server then queries the provider. If you stop, the server finishes the request later. Do not use another key: that would be another request, for example another payment.",
		See:    []string{"temporarily-unavailable", "idempotency-key-in-progress"}, err: &operations.ProviderError{Kind: operations.ErrOutcomeUnknown, RetryAfter: 2 * time.Second},
	}
	problemUnavailable = problemType{
		Slug: "temporarily-unavailable", Status: http.StatusServiceUnavailable, Retry: retrySameKey, Outcomes: noneOrUnknown,
		Title:  "The service is temporarily unavailable",
		Help:   "The server is overloaded or stopping, it cannot reach the database or the payment provider, or the provider rejects its requests. No data is lost.",
		Effect: "The request is not finished. If `outcome` is `unknown`, this request or an earlier one with the same key may have moved money, at most once.",
		Next:   "Send the same request, with the same key, after `Retry-After` seconds. It resumes where it stopped, and money never moves twice. Do not use another key: that would be another payment.",
		See:    []string{"payment-outcome-unknown", "internal-error"}, err: postgres.ErrUnavailable,
	}
)

func problemTypes() []problemType {
	return []problemType{
		problemKeyMissing, problemKeyInvalid, problemMalformed, problemUnauthorized,
		problemDeclined, problemNotFound, problemMethodNotAllowed, problemKeyInProgress,
		problemTooLarge, problemUnsupportedMedia, problemKeyReused, problemKeyExpired,
		problemValidation, problemOrderExists, problemNotRefundable, problemExceedsRemaining, problemRefused,
		problemRateLimited, problemInternal, problemOutcomeUnknown, problemUnavailable,
	}
}

func (t problemType) example() (document []byte, retryAfter int) {
	if t.Stored != "" {
		return []byte(t.Stored), 0
	}
	request := &http.Request{Method: http.MethodPost, URL: &url.URL{}, Header: http.Header{}}
	if !t.noKey {
		request.Header.Set("Idempotency-Key", "8f14e45f-ceea-467f-a9d4-1f6b7c3e2d10")
	}
	p := problemOf(t.err).forRequest(request, t.err)
	p.RequestID = "3JQ6ZB7XKPLRWA4DM2VHSTN5EY"
	document, _ = json.Marshal(p) // see writeProblem
	return document, p.retryAfter
}
