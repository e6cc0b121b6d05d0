package payments_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

// verdict is the part of an error that orders acts on.
type verdict struct {
	outcome         payments.Outcome
	saved500        bool
	unexpectedState bool
	misuse          bool
	retryAfter      time.Duration
	message         string
	sends           int
}

func stripeError(kind, code, more string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"message":"Text for the customer."%s}}`, kind, code, more)
}

// TestProviderAnswers has a row for each class of answer a confirm can get.
func TestProviderAnswers(t *testing.T) {
	t.Parallel()
	const (
		invalid  = "invalid_request_error"
		text     = "Text for the customer."
		sec      = time.Second
		declined = payments.Declined
		refused  = payments.Refused
		notRun   = payments.NotExecuted
		unknown  = payments.Unknown
	)
	embedded := `,"payment_intent":` + intent("requires_payment_method")
	tests := map[string]struct {
		answer answer
		want   verdict
	}{
		"card declined": {
			answer{status: 402, body: stripeError("card_error", "card_declined", `,"decline_code":"insufficient_funds"`+embedded)},
			verdict{outcome: declined, message: text, sends: 1},
		},
		"card expired, as recordings of 2023 have it: no decline code, no intent": {
			answer{status: 402, body: stripeError("card_error", "expired_card", "")},
			verdict{outcome: declined, message: text, sends: 1},
		},
		"processing error of the card network": {
			answer{status: 402, body: stripeError("card_error", "processing_error", embedded)},
			verdict{outcome: declined, message: text, sends: 1},
		},
		"card needs its owner to authenticate": {
			answer{status: 402, body: stripeError("card_error", "authentication_required", embedded)},
			verdict{outcome: declined, message: text, sends: 1},
		},
		"decline whose message quotes a client secret": {
			answer{status: 402, body: strings.Replace(stripeError("card_error", "card_declined", ""), "the customer", clientSecret, 1)},
			verdict{outcome: declined, sends: 1},
		},
		"decline whose message quotes an API key": {
			answer{status: 402, body: strings.Replace(stripeError("card_error", "card_declined", ""), "the customer", secretKey, 1)},
			verdict{outcome: declined, sends: 1},
		},
		"decline about another intent": {
			answer{status: 402, body: stripeError("card_error", "card_declined", strings.Replace(embedded, `"pi_1"`, `"pi_2"`, 1))},
			verdict{outcome: unknown, misuse: true, retryAfter: 60 * sec, sends: 1},
		},
		"decline of an intent that succeeded": {
			answer{status: 402, body: stripeError("card_error", "card_declined", `,"payment_intent":`+intent("succeeded"))},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"402 that is no card error": {
			answer{status: 402, body: stripeError(invalid, "", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},

		"unknown payment method": {
			answer{status: 400, body: stripeError(invalid, "resource_missing", `,"param":"payment_method"`)},
			verdict{outcome: refused, message: text, sends: 1},
		},
		"spent payment method": {
			answer{status: 400, body: `{"error":{"type":"invalid_request_error","message":"The provided PaymentMethod was previously used."}}`},
			verdict{outcome: refused, message: "The provided PaymentMethod was previously used.", sends: 1},
		},
		"amount too small": {
			answer{status: 400, body: stripeError(invalid, "amount_too_small", "")},
			verdict{outcome: refused, message: text, sends: 1},
		},
		"amount of zero": {
			answer{status: 400, body: stripeError(invalid, "parameter_invalid_integer", `,"param":"amount"`)},
			verdict{outcome: refused, message: text, sends: 1},
		},
		"parameter Stripe does not know": {
			answer{status: 400, body: stripeError(invalid, "parameter_unknown", `,"param":"off_sesion"`)},
			verdict{outcome: refused, misuse: true, sends: 1},
		},
		"parameter we left out": {
			answer{status: 400, body: stripeError(invalid, "parameter_missing", `,"param":"amount"`)},
			verdict{outcome: refused, misuse: true, sends: 1},
		},
		"other 400": {
			answer{status: 400, body: stripeError(invalid, "", "")},
			verdict{outcome: refused, misuse: true, sends: 1},
		},
		"intent in another state": {
			answer{status: 400, body: stripeError(invalid, "payment_intent_unexpected_state", `,"payment_intent":`+intent("succeeded"))},
			verdict{outcome: unknown, unexpectedState: true, retryAfter: 2 * sec, sends: 1},
		},
		"key used with other parameters": {
			answer{status: 400, body: `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters."}}`},
			verdict{outcome: unknown, misuse: true, retryAfter: 60 * sec, sends: 1},
		},

		"API key unknown": {
			answer{status: 401, body: fmt.Sprintf(`{"error":{"type":"invalid_request_error","message":"Invalid API Key provided: %s"}}`, secretKey)},
			verdict{outcome: notRun, misuse: true, retryAfter: 60 * sec, sends: 1},
		},
		"API key without the right": {
			answer{status: 403, body: stripeError(invalid, "", "")},
			verdict{outcome: notRun, misuse: true, retryAfter: 60 * sec, sends: 1},
		},
		"intent unknown": {
			answer{status: 404, body: stripeError(invalid, "resource_missing", `,"param":"intent"`)},
			verdict{outcome: notRun, misuse: true, retryAfter: 60 * sec, sends: 1},
		},
		"URL unknown": {
			answer{status: 404, body: stripeError(invalid, "", "")},
			verdict{outcome: notRun, misuse: true, retryAfter: 60 * sec, sends: 1},
		},

		"key in use": {
			answer{status: 409, body: stripeError(invalid, "idempotency_key_in_use", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"other conflict": {
			answer{status: 409, body: stripeError(invalid, "", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"intent locked": {
			answer{status: 429, body: stripeError(invalid, "lock_timeout", "")},
			verdict{outcome: notRun, retryAfter: 1 * sec, sends: 3},
		},
		"rate limit": {
			answer{status: 429, body: stripeError(invalid, "rate_limit", "")},
			verdict{outcome: notRun, retryAfter: 2 * sec, sends: 3},
		},
		"rate limit that names its end": {
			answer{status: 429, body: stripeError(invalid, "rate_limit", ""), header: http.Header{"Retry-After": {"7"}}},
			verdict{outcome: notRun, retryAfter: 7 * sec, sends: 3},
		},
		"Retry-After beyond belief": {
			answer{status: 429, body: stripeError(invalid, "rate_limit", ""), header: http.Header{"Retry-After": {"9000000000000"}}},
			verdict{outcome: notRun, retryAfter: time.Hour, sends: 1},
		},
		"429 from a proxy": {
			answer{status: 429, body: "<html>slow down"},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},

		"500 that Stripe saved": {
			answer{status: 500, body: stripeError("api_error", "", "")},
			verdict{outcome: unknown, saved500: true, retryAfter: 30 * sec, sends: 1},
		},
		"500 from a proxy": {
			answer{status: 500, body: "<html>oops"},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"500 of another type": {
			answer{status: 500, body: stripeError(invalid, "", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"502 in HTML": {
			answer{status: 502, body: "<html>" + clientSecret},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"503 in Stripe's words": {
			answer{status: 503, body: stripeError("api_error", "", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"504 without a body": {
			answer{status: 504},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"400 in HTML": {
			answer{status: 400, body: "<html>bad request"},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"401 in HTML": {
			answer{status: 401, body: "<html>proxy login"},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"402 without a body": {
			answer{status: 402},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"402 of an unknown type": {
			answer{status: 402, body: stripeError("something_new", "card_declined", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"error without a type": {
			answer{status: 400, body: `{"error":{"message":"` + clientSecret + `"}}`},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"error that is null": {
			answer{status: 402, body: `{"error":null,"x":"` + clientSecret + `"}`},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"error of a status nobody documented": {
			answer{status: 418, body: stripeError(invalid, "", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},

		"redirect": {
			answer{status: 307, body: intent("succeeded"), header: http.Header{"Location": {"/" + clientSecret}}},
			verdict{outcome: unknown, misuse: true, retryAfter: 60 * sec, sends: 1},
		},
		"success with another status than 200": {
			answer{status: 202, body: intent("succeeded")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 without a body": {
			answer{status: 200},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 in HTML": {
			answer{status: 200, body: "<html>" + clientSecret},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 with an empty object": {
			answer{status: 200, body: "{}"},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 with null": {
			answer{status: 200, body: "null"},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 with no more than the id": {
			answer{status: 200, body: `"pi_1"`},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 with another object": {
			answer{status: 200, body: strings.Replace(intent("succeeded"), `"payment_intent"`, `"charge"`, 1)},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 without the id": {
			answer{status: 200, body: strings.Replace(intent("succeeded"), `"pi_1"`, `""`, 1)},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 with a wrong JSON type": {
			answer{status: 200, body: strings.Replace(intent("succeeded"), "2500", `"2500"`, 1)},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 with an error in it": {
			answer{status: 200, body: stripeError("card_error", "card_declined", "")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 larger than 1 MiB": {
			answer{status: 200, body: strings.Repeat(" ", 1<<20) + intent("succeeded")},
			verdict{outcome: unknown, retryAfter: 2 * sec, sends: 3},
		},
		"200 about another intent": {
			answer{status: 200, body: strings.Replace(intent("succeeded"), `"pi_1"`, `"pi_2"`, 1)},
			verdict{outcome: unknown, misuse: true, retryAfter: 60 * sec, sends: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, test.answer)
			got, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1")
			e := failure(t, err)
			require.Equal(t, test.want, verdict{
				e.Outcome, e.ReplayedError, e.UnexpectedState, e.NeedsOperator, e.RetryAfter, e.Message, len(provider.seen()),
			}, e)
			require.Zero(t, got)
			require.Equal(t, test.answer.status, e.HTTPStatus)
			require.Equal(t, "req_1", e.RequestID)
			for _, key := range provider.keys() {
				require.Equal(t, confirmKey, key)
			}
		})
	}
}

func TestADeclineTellsItsReasonAndIntent(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, answer{status: 402, body: stripeError("card_error", "card_declined",
		`,"decline_code":"insufficient_funds","param":"number","payment_intent":`+intent("requires_payment_method"))})

	_, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1")
	e := failure(t, err)
	require.Equal(t, "card_error", e.Type)
	require.Equal(t, "card_declined", e.Code)
	require.Equal(t, "insufficient_funds", e.DeclineCode)
	require.Equal(t, "number", e.Param)
	require.Equal(t, "pi_1", e.Intent.ID)
	require.Equal(t, payments.StatusRequiresPaymentMethod, e.Intent.Status)
	require.EqualError(t, e, "payments: declined, status 402, type card_error, code card_declined, "+
		"decline code insufficient_funds, param number, request req_1")
	require.NoError(t, e.Unwrap())
}

func TestA500OfAReadIsSavedNowhere(t *testing.T) {
	t.Parallel()
	provider := startProvider(t,
		answer{status: 500, body: stripeError("api_error", "", "")},
		answer{status: 200, body: intent("succeeded")})

	got, err := newClient(t, provider.url).Get(t.Context(), "pi_1")
	require.NoError(t, err)
	require.Equal(t, payments.StatusSucceeded, got.Status)
}

func TestSecretsAreKeptOutOfEveryField(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf(`{"error":{"type":"card_error","code":%[1]q,"decline_code":%[2]q,"param":%[2]q,"message":%[1]q,`+
		`"payment_intent":{"id":"pi_1","object":"payment_intent","status":"requires_payment_method","amount":1,"currency":"eur",`+
		`"client_secret":%[1]q,"last_payment_error":{"type":"card_error","code":%[1]q,"decline_code":%[2]q,"message":%[1]q}}}}`,
		clientSecret, secretKey)
	provider := startProvider(t, answer{status: 402, body: body, header: http.Header{"Request-Id": {secretKey}}})

	_, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1")
	e := failure(t, err)
	require.Equal(t, payments.Declined, e.Outcome)
	require.Equal(t, &payments.Decline{}, e.Intent.LastError)
}

func TestWhatDoesNotShowIsDropped(t *testing.T) {
	t.Parallel()
	const said = `Sorry\u0000,\u001b[31m no\u2028.`
	provider := startProvider(t, answer{status: 402, body: `{"error":{"type":"card_error","code":"card\u0000_declined",` +
		`"decline_code":"\nfraudulent","message":"` + said + `","payment_intent":` +
		strings.Replace(intent("requires_payment_method"), `"client_secret"`,
			`"last_payment_error":{"type":"card_error","code":"card_declined\u0007","message":"`+said+`"},"client_secret"`, 1) + `}}`})

	_, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1")
	e := failure(t, err)
	require.Equal(t, "card_declined", e.Code)
	require.Equal(t, "fraudulent", e.DeclineCode)
	require.Equal(t, "Sorry,[31m no.", e.Message)
	require.Equal(t, &payments.Decline{Code: "card_declined", Message: "Sorry,[31m no."}, e.Intent.LastError)
}
