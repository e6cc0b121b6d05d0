package recorded

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"example.com/orders-api/payments"
)

// A verdict is what the client must return for an error.
type verdict struct {
	outcome  payments.Outcome
	repeated bool // the client sends the request again, with the same key
	operator bool // an alert, because a retry of the order cannot help
	saved    bool // the provider repeats this response to the same key
}

// A rule is a row of the table of outcomes. The first rule that applies decides.
type rule struct {
	name    string
	applies func(e exchange, failure object) bool
	want    verdict
}

var (
	again        = verdict{outcome: payments.Unknown, repeated: true}
	notExecuted  = verdict{outcome: payments.NotExecuted, repeated: true}
	configured   = verdict{outcome: payments.NotExecuted, operator: true}
	unknownUntil = verdict{outcome: payments.Unknown, operator: true}
	keyUsed      = verdict{outcome: payments.KeyUsed, operator: true}
	refused      = verdict{outcome: payments.Refused}
	declined     = verdict{outcome: payments.Declined}
)

// outcomes is the table of what is right. It follows from Stripe's documentation (docs.stripe.com/api/errors,
// /error-low-level and /api/idempotent_requests) and from what the recordings show. An answer that proves
// nothing is Unknown, and only what no operator can change is final.
var outcomes = []rule{
	{"no response in Stripe's format", func(_ exchange, f object) bool { return f.text("type") == "" }, again},

	// A card_error is about the card, whatever its status is; Stripe documents it for 402.
	{"a decline of an intent that may be charged", func(e exchange, f object) bool {
		return mayBeDecline(e) && f.text("type") == "card_error" && mayBeCharged(f)
	}, again},
	{"a decline", func(e exchange, f object) bool { return mayBeDecline(e) && f.text("type") == "card_error" }, declined},

	// Issues of stripe-go (1077) and stripe-php (762) quote such responses.
	{"a decline as an invalid request", func(e exchange, f object) bool {
		return mayBeDecline(e) && slices.Contains([]string{declineLimit, "card_declined"}, f.text("code"))
	}, declined},

	// The key's first request may have charged. Before 2018, the type was that of any other 400.
	{"a key of another request", func(e exchange, f object) bool {
		return rejected(e) && strings.HasPrefix(f.text("message"), "Keys for idempotent requests ")
	}, keyUsed},
	{"another error of the key", func(e exchange, f object) bool {
		return rejected(e) && f.text("type") == "idempotency_error"
	}, keyUsed},
	{"the key is in use", func(e exchange, _ object) bool { return e.Status == http.StatusConflict }, again},

	// It follows a confirm or a cancel, or a decline, which leaves the intent without a card.
	{"the state of the intent", badRequest("payment_intent_unexpected_state", ""), verdict{outcome: payments.UnexpectedState}},

	{"the account has no search", func(e exchange, _ object) bool {
		return strings.HasSuffix(e.Path, "/search") && slices.Contains([]int{400, 403, 404}, e.Status)
	}, verdict{outcome: payments.NotOffered}},

	// A method that cannot be used again, or that belongs to a customer: other details help.
	{"the payment method of the request", func(e exchange, f object) bool {
		return rejected(e) && (strings.HasPrefix(f.text("message"), "The provided PaymentMethod ") ||
			strings.HasPrefix(f.text("message"), "The `payment_method` parameter supplied "))
	}, refused},

	// The seller's mistake, which no buyer can correct: with a link to the dashboard, or an object of the
	// other mode or of another account.
	{"the configuration", func(e exchange, f object) bool {
		return e.Status == http.StatusBadRequest && ofConfiguration.MatchString(f.text("message"))
	}, configured},

	{"the amount is too small", badRequest("amount_too_small", ""), refused},
	{"the amount is too large", badRequest("amount_too_large", ""), refused},
	{"an amount that is no integer", badRequest("parameter_invalid_integer", "amount"), refused},
	{"another amount", badRequest("", "amount"), refused},
	{"an empty amount", badRequest("parameter_invalid_empty", "amount"), refused},
	{"another currency", badRequest("", "currency"), refused},
	{"an unknown payment method", badRequest("resource_missing", "payment_method"), refused},
	{"another payment method", badRequest("", "payment_method"), refused},
	{"a method for other currencies", badRequest("payment_method_currency_mismatch", ""), refused},
	{"a method of another kind", badRequest("payment_intent_incompatible_payment_method", ""), refused},
	{"a kind of method", badRequest("payment_method_unsupported_type", ""), refused},
	{"the state of the method", badRequest("payment_method_unexpected_state", "payment_method"), refused},
	{"an invalid method", badRequest("payment_method_invalid_parameter", "payment_method"), refused},
	{"a method that the intent does not accept", badRequest("payment_intent_invalid_parameter", "payment_method"), refused},
	{"a charge that is refunded", badRequest("charge_already_refunded", ""), refused},
	{"a disputed charge", badRequest("charge_disputed", ""), refused},
	{"a refund during a dispute", badRequest("refund_disputed_payment", ""), refused},
	{"a charge without refunds", badRequest("charge_not_refundable", ""), refused},

	// In doubt, an operator decides, and the order stays open.
	{"another invalid request for an intent that may be charged", func(e exchange, f object) bool {
		return e.Status == http.StatusBadRequest && f.text("type") == "invalid_request_error" && mayBeCharged(f)
	}, unknownUntil},
	{"another invalid request", func(e exchange, f object) bool {
		return e.Status == http.StatusBadRequest && f.text("type") == "invalid_request_error"
	}, configured},

	// Nothing proves that it had no effect, and a repetition gets the same answer.
	{"a failed request that is no decline", isStatus(http.StatusPaymentRequired), unknownUntil},
	{"a 400 that is no invalid request", isStatus(http.StatusBadRequest), unknownUntil},

	// These are checked before a request is executed.
	{"the API key", isStatus(http.StatusUnauthorized), configured},
	{"a permission", isStatus(http.StatusForbidden), configured},
	{"an unknown object or URL", isStatus(http.StatusNotFound), configured},
	{"a limit or a lock", isStatus(http.StatusTooManyRequests), notExecuted},

	{"a time-out or a dependency of Stripe", isStatus(http.StatusRequestTimeout, http.StatusFailedDependency, http.StatusTooEarly), again},
	{"a status that Stripe does not document", func(e exchange, _ object) bool { return e.Status < http.StatusInternalServerError }, unknownUntil},

	// A 500 is stored for the key, although its effect may come later.
	{"an error at Stripe, of a POST", func(e exchange, f object) bool {
		return e.Status == http.StatusInternalServerError && f.text("type") == "api_error" && e.Method != http.MethodGet
	}, verdict{outcome: payments.Unknown, saved: true}},
	{"an error at Stripe", func(e exchange, _ object) bool { return e.Status >= http.StatusInternalServerError }, again},
}

const declineLimit = "card_decline_rate_limit_exceeded"

func isStatus(any ...int) func(exchange, object) bool {
	return func(e exchange, _ object) bool { return slices.Contains(any, e.Status) }
}

// rejected reports whether the status is that of an invalid request, or of one that failed.
func rejected(e exchange) bool {
	return e.Status == http.StatusBadRequest || e.Status == http.StatusPaymentRequired
}

// mayBeDecline holds also for the status of a limit, because one limit is that of a card's declines.
func mayBeDecline(e exchange) bool { return rejected(e) || e.Status == http.StatusTooManyRequests }

// badRequest applies to a rejection with this code and, if it is not empty, this parameter.
func badRequest(code, param string) func(exchange, object) bool {
	return func(e exchange, f object) bool {
		return rejected(e) && f.text("type") == "invalid_request_error" &&
			f.text("code") == code && (param == "" || f.text("param") == param)
	}
}

func mayBeCharged(failure object) bool {
	return slices.Contains([]string{"succeeded", "processing", "requires_capture"}, failure.object("payment_intent").text("status"))
}

var ofConfiguration = regexp.MustCompile(`(?i)dashboard\.stripe\.com|\b(live|test) ?mode|\bStripe-Account\b`)

// judge returns the rule for an error.
func judge(e exchange) (rule, bool) {
	for _, r := range outcomes {
		if r.applies(e, e.failure()) {
			return r, true
		}
	}
	return rule{}, false
}
