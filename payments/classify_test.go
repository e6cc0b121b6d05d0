package payments_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

const invalid = "invalid_request_error"

func stripeError(kind, code, more string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"message":"Text for the customer."%s}}`, kind, code, more)
}

func param(name string) string { return fmt.Sprintf(`,"param":%q`, name) }

func withMessage(code, param, message string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"param":%q,"message":%q}}`, invalid, code, param, message)
}

const noMethodForCurrency = "No valid payment method types for this Payment Intent. Please ensure that you have activated payment methods " +
	"compatible with your chosen currency in your dashboard (https://dashboard.stripe.com/settings/payments)."

// Stripe's messages about a payment method of the other mode or of another account.
const (
	otherMode = "No such PaymentMethod: 'pm_1'; a similar object exists in live mode, but a test mode key was used to make this request."
	platforms = "No such PaymentMethod: 'pm_1'; OAuth key or Stripe-Account header was used but API request was provided with a " +
		"platform-owned payment method ID. Please ensure that the provided payment method matches the specified account."
	testID = "You cannot use the test ID 'pm_card_visa' in livemode. If you are testing your integration, please use your testmode API keys instead."
)

// In 2017, its type was invalid_request_error.
const keyOfEndpoint = "Keys for idempotent requests can only be used for the same endpoint they were first used for " +
	"('/v1/refunds' vs '/v1/payment_intents'). Try using a key other than 'k' if you meant to execute a different request."

const methodOfCustomer = "The `payment_method` parameter supplied pm_1 belongs to the Customer cus_1. " +
	"Please include the Customer in the `customer` parameter on the PaymentIntent."

type classified struct {
	outcome       payments.Outcome
	savedUnderKey bool
	needsOperator bool
	retryAfter    time.Duration
	message       string
	attempts      int
}

func TestClassify(t *testing.T) {
	t.Parallel()
	const text = "Text for the customer."
	var (
		declined         = classified{outcome: payments.Declined, message: text, attempts: 1}
		declinedSilently = classified{outcome: payments.Declined, attempts: 1} // the text may contain a secret
		refused          = classified{outcome: payments.Refused, message: text, attempts: 1}
		// An account that is not set up, or a bug.
		ourFault     = classified{outcome: payments.NotExecuted, needsOperator: true, retryAfter: time.Minute, attempts: 1}
		unknownFault = classified{outcome: payments.Unknown, needsOperator: true, retryAfter: time.Minute, attempts: 1}
		keyUsed      = classified{outcome: payments.KeyUsed, needsOperator: true, retryAfter: time.Minute, attempts: 1}
		retried      = classified{outcome: payments.Unknown, retryAfter: 2 * time.Second, attempts: 3}
	)
	replayedFault := ourFault
	replayedFault.savedUnderKey = true
	refusedWith := func(message string) classified {
		return classified{outcome: payments.Refused, message: message, attempts: 1}
	}
	limited := func(retryAfter time.Duration, attempts int) classified {
		return classified{outcome: payments.NotExecuted, retryAfter: retryAfter, attempts: attempts}
	}
	unpaid, paid := `,"payment_intent":`+intent("requires_payment_method"), `,"payment_intent":`+intent("succeeded")
	card := func(code, more string) response {
		return response{status: 402, body: stripeError("card_error", code, more)}
	}
	quoting := func(secret string) response {
		return response{status: 402, body: strings.Replace(stripeError("card_error", "card_declined", ""), "the customer", secret, 1)}
	}
	changed := func(old, new string) response {
		return response{status: 200, body: strings.Replace(intent("succeeded"), old, new, 1)}
	}
	noRetry := http.Header{"Stripe-Should-Retry": {"false"}}
	type row struct {
		response response
		want     classified
	}
	unexpectedState := classified{outcome: payments.UnexpectedState, retryAfter: 2 * time.Second, attempts: 1}
	limit := limited(2*time.Second, 3)
	tests := map[string]row{
		"card declined": {card("card_declined", `,"decline_code":"insufficient_funds"`+unpaid), declined},
		"card expired, without decline code and intent": {card("expired_card", ""), declined},
		"card requires authentication":                  {card("authentication_required", unpaid), declined},
		"decline whose message quotes a client secret":  {quoting(clientSecret), declinedSilently},
		"decline whose message quotes an API key":       {quoting(secretKey), declinedSilently},
		"decline about another intent":                  {card("card_declined", strings.Replace(unpaid, `"pi_1"`, `"pi_2"`, 1)), unknownFault},
		"decline of an intent that succeeded":           {card("card_declined", paid), retried},
		"402 without a card error":                      {response{status: 402, body: stripeError(invalid, "", "")}, unknownFault},
		"402 with an error of Stripe":                   {response{status: 402, body: stripeError("api_error", "", "")}, unknownFault},
		"402 with an error of the key":                  {response{status: 402, body: stripeError("idempotency_error", "", "")}, keyUsed},
		"400 with an error of Stripe":                   {response{status: 400, body: stripeError("api_error", "", "")}, unknownFault},
		"decline without a retry":                       {response{status: 402, body: stripeError("card_error", "card_declined", paid), header: noRetry}, classified{retryAfter: 2 * time.Second, attempts: 1}},
		"decline with a retry":                          {response{status: 402, body: stripeError("card_error", "card_declined", unpaid), header: http.Header{"Stripe-Should-Retry": {"true"}}}, declined},
		"card error with status 400":                    {response{status: 400, body: stripeError("card_error", "", unpaid)}, declined},
		"limit of declines, and no card left":           {response{status: 400, body: stripeError(invalid, "card_decline_rate_limit_exceeded", unpaid)}, declined},
		"limit of declines of a paid intent":            {response{status: 400, body: stripeError(invalid, "card_decline_rate_limit_exceeded", paid)}, unknownFault},

		"unknown payment method":               {response{status: 400, body: stripeError(invalid, "resource_missing", param("payment_method"))}, refused},
		"payment method of the other mode":     {response{status: 400, body: withMessage("resource_missing", "payment_method", otherMode)}, ourFault},
		"payment method of the platform":       {response{status: 400, body: withMessage("resource_missing", "payment_method", platforms)}, ourFault},
		"test payment method in live mode":     {response{status: 400, body: withMessage("", "", testID)}, ourFault},
		"the same, with a parameter":           {response{status: 400, body: withMessage("", "payment_method", testID)}, ourFault},
		"unknown payment method, old versions": {response{status: 400, body: withMessage("resource_missing", "payment_method", "No such payment_method: pm_1")}, refusedWith("No such payment_method: pm_1")},
		"used payment method":                  {response{status: 400, body: withMessage("", "", "The provided PaymentMethod was previously used.")}, refusedWith("The provided PaymentMethod was previously used.")},
		"payment method of another":            {response{status: 400, body: withMessage("parameter_missing", "source", methodOfCustomer)}, refusedWith(methodOfCustomer)},
		"amount of zero":                       {response{status: 400, body: stripeError(invalid, "parameter_invalid_integer", param("amount"))}, refused},
		"refund too high":                      {response{status: 400, body: stripeError(invalid, "", param("amount"))}, refused},
		"invalid currency":                     {response{status: 400, body: withMessage("", "currency", "Invalid currency: xxx.")}, refusedWith("Invalid currency: xxx.")},
		"refund of an unknown intent":          {response{status: 400, body: stripeError(invalid, "resource_missing", param("payment_intent"))}, ourFault},
		"unknown parameter":                    {response{status: 400, body: stripeError(invalid, "parameter_unknown", param("off_sesion"))}, ourFault},
		"missing parameter":                    {response{status: 400, body: stripeError(invalid, "parameter_missing", param("amount"))}, ourFault},
		"other 400":                            {response{status: 400, body: stripeError(invalid, "", "")}, ourFault},
		"other 400 of a paid intent":           {response{status: 400, body: stripeError(invalid, "", paid)}, unknownFault},
		"other 400 that is replayed":           {response{status: 400, body: stripeError(invalid, "", ""), header: http.Header{"Idempotent-Replayed": {"true"}}}, replayedFault},
		"no method for the currency":           {response{status: 400, body: withMessage("payment_intent_invalid_parameter", "currency", noMethodForCurrency)}, ourFault},
		"intent in another state":              {response{status: 400, body: stripeError(invalid, "payment_intent_unexpected_state", paid)}, unexpectedState},
		"key with other parameters":            {response{status: 400, body: stripeError("idempotency_error", "", "")}, keyUsed},
		"key of another endpoint":              {response{status: 400, body: withMessage("", "", keyOfEndpoint)}, keyUsed},

		"API key unknown":                {response{status: 401, body: withMessage("", "", "Invalid API Key provided: "+secretKey)}, ourFault},
		"API key without the permission": {response{status: 403, body: stripeError(invalid, "", "")}, ourFault},
		"intent unknown":                 {response{status: 404, body: stripeError(invalid, "resource_missing", param("intent"))}, ourFault},
		"key in use":                     {response{status: 409, body: stripeError(invalid, "idempotency_key_in_use", "")}, retried},
		"intent locked":                  {response{status: 429, body: stripeError(invalid, "lock_timeout", "")}, limited(time.Second, 3)},
		"rate limit":                     {response{status: 429, body: stripeError(invalid, "rate_limit", "")}, limit},
		"429 from a proxy":               {response{status: 429, body: "<html>slow down"}, retried},

		"500 that Stripe stores":   {response{status: 500, body: stripeError("api_error", "", "")}, classified{savedUnderKey: true, retryAfter: 30 * time.Second, attempts: 1}},
		"500 from a proxy":         {response{status: 500, body: "<html>oops"}, retried},
		"502 in HTML":              {response{status: 502, body: "<html>" + clientSecret}, retried},
		"503 in Stripe's format":   {response{status: 503, body: stripeError("api_error", "", "")}, retried},
		"401 in HTML":              {response{status: 401, body: "<html>proxy login"}, retried},
		"402 without a body":       {response{status: 402}, retried},
		"402 of an unknown type":   {response{status: 402, body: stripeError("something_new", "card_declined", "")}, retried},
		"error that is null":       {response{status: 402, body: `{"error":null,"x":"` + clientSecret + `"}`}, retried},
		"cut off, without a retry": {response{status: 200, body: intent("succeeded")[:99], header: noRetry}, retried},
		"503 without a retry":      {response{status: 503, body: stripeError("api_error", "", ""), header: noRetry}, classified{retryAfter: 2 * time.Second, attempts: 1}},

		"redirect":                 {response{status: 307, body: intent("succeeded"), header: http.Header{"Location": {"/" + clientSecret}}}, unknownFault},
		"success with status 202":  {response{status: 202, body: intent("succeeded")}, retried},
		"200 in HTML":              {response{status: 200, body: "<html>" + clientSecret}, retried},
		"200 with an empty object": {response{status: 200, body: "{}"}, retried},
		"200 with the id only":     {response{status: 200, body: `"pi_1"`}, retried},
		"200 with another object":  {changed(`"payment_intent"`, `"charge"`), retried},
		"200 with a wrong type":    {changed("2500", `"2500"`), retried},
		"200 with an error in it":  {response{status: 200, body: stripeError("card_error", "card_declined", "")}, retried},
		"200 larger than 1 MiB":    {response{status: 200, body: strings.Repeat(" ", 1<<20) + intent("succeeded")}, retried},
		"200 about another intent": {changed(`"pi_1"`, `"pi_2"`), unknownFault},
	}
	for codes, want := range map[string]struct{ with400, with402, with429 classified }{
		// The customer's card, bank or approval.
		"card_decline_rate_limit_exceeded card_declined expired_card incorrect_address incorrect_cvc incorrect_number " +
			"incorrect_zip invalid_cvc invalid_expiry_month invalid_expiry_year invalid_number processing_error " +
			"authentication_required payment_intent_authentication_failure payment_intent_mandate_invalid " +
			"payment_intent_payment_attempt_expired payment_intent_payment_attempt_failed payment_method_customer_decline " +
			"payment_method_not_available payment_method_provider_decline payment_method_provider_timeout account_closed " +
			"bank_account_declined bank_account_restricted debit_not_authorized no_account " +
			"payment_method_bank_account_blocked refer_to_customer": {declined, declined, declined},
		// A value of the request.
		"amount_too_large amount_too_small invalid_charge_amount payment_intent_incompatible_payment_method " +
			"payment_method_billing_details_address_missing payment_method_currency_mismatch payment_method_unsupported_type " +
			"charge_already_refunded charge_disputed charge_not_refundable refund_disputed_payment": {refused, refused, limit},
		// The account, or a bug.
		"account_invalid balance_insufficient charge_exceeds_source_limit charge_exceeds_transaction_limit charge_expired_for_capture " +
			"insufficient_funds livemode_mismatch payment_method_unactivated testmode_charges_only unheard_of": {ourFault, unknownFault, limit},
		// The intent shows whether the card was charged.
		"intent_invalid_state payment_intent_unexpected_state": {unexpectedState, unexpectedState, limit},
	} {
		for code := range strings.FieldsSeq(codes) {
			for status, want := range map[int]classified{400: want.with400, 402: want.with402, 429: want.with429} {
				tests[fmt.Sprint(code, " ", status)] = row{response{status: status, body: stripeError(invalid, code, param("amount"))}, want}
			}
		}
	}
	// A status that Stripe does not document proves nothing. A failed dependency is one of its documented statuses.
	for status := 405; status < 500; status++ {
		want := unknownFault
		if slices.Contains([]int{408, 409, 424, 425}, status) {
			want = retried
		}
		if status != 429 {
			tests[fmt.Sprint("other status ", status)] = row{response{status: status, body: stripeError(invalid, "", "")}, want}
			tests[fmt.Sprint("other status of a proxy ", status)] = row{response{status: status, body: "<html>"}, retried}
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // backoff takes no time
				provider := respond(test.response)
				got, err := confirm(t, newClient(t, provider))
				e := failure(t, err)
				delay, message := e.RetryDelay(), e.Message
				if e.Outcome == payments.Declined || e.Outcome == payments.Refused {
					delay = 0 // no other run follows
				} else {
					message = "" // see TestClassify_operatorMessage
				}
				require.Equal(t, test.want, classified{
					e.Outcome, e.SavedUnderKey, e.NeedsOperator, delay, message, len(provider.seen()),
				}, e)
				require.Zero(t, got)
				require.Equal(t, test.response.status, e.HTTPStatus)
				require.Equal(t, "req_1", e.RequestID)
			})
		})
	}
}

func TestClassify_details(t *testing.T) {
	t.Parallel()
	e := confirmFailure(t, newClient(t, respond(response{status: 402, body: stripeError("card_error", "card_declined",
		`,"decline_code":"insufficient_funds","param":"number","payment_intent":`+intent("requires_payment_method"))})))
	require.Equal(t, "insufficient_funds", e.DeclineCode)
	require.Equal(t, payments.StatusRequiresPaymentMethod, e.Intent.Status)
	require.EqualError(t, e, "payments: declined, status 402, type card_error, code card_declined, "+
		"decline code insufficient_funds, param number, request req_1")
	require.NoError(t, e.Unwrap())
}

func TestClassify_noSecrets(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf(`{"error":{"type":"card_error","code":%[1]q,"decline_code":%[2]q,"param":%[2]q,"message":%[1]q,`+
		`"payment_intent":{"id":"pi_1","object":"payment_intent","status":"requires_payment_method","amount":1,"currency":"eur","metadata":{},`+
		`"client_secret":%[1]q,"last_payment_error":{"type":"card_error","code":%[1]q,"decline_code":%[2]q,"message":%[1]q}}}}`,
		clientSecret, secretKey)
	e := confirmFailure(t, newClient(t, respond(response{status: 402, body: body, header: http.Header{"Request-Id": {secretKey}}})))
	require.Equal(t, payments.Declined, e.Outcome)
	require.Equal(t, &payments.Decline{}, e.Intent.LastError)
}

func TestClassify_invisibleCharacters(t *testing.T) {
	t.Parallel()
	const text = `Sorry\u0000,\u001b[31m no\u2028.`
	e := confirmFailure(t, newClient(t, respond(response{status: 402, body: `{"error":{"type":"card_error","code":"card\u0000_declined",` +
		`"decline_code":"\nfraudulent","message":"` + text + `","payment_intent":` +
		strings.Replace(intent("requires_payment_method"), `"client_secret"`,
			`"last_payment_error":{"type":"card_error","code":"card_declined\u0007","message":"`+text+`"},"client_secret"`, 1) + `}}`})))
	require.Equal(t, "card_declined fraudulent", e.Code+" "+e.DeclineCode)
	require.Equal(t, "Sorry,[31m no.", e.Message)
	require.Equal(t, &payments.Decline{Code: "card_declined", Message: "Sorry,[31m no."}, e.Intent.LastError)
}

func TestClassify_operatorMessage(t *testing.T) {
	t.Parallel()
	text := func(message string) response { return response{status: 400, body: withMessage("", "", message)} }
	for name, test := range map[string]struct {
		response response
		want     string
	}{
		"account not set up":   {text(noMethodForCurrency), ": " + noMethodForCurrency},
		"API key in it":        {text("Invalid API Key provided: " + secretKey + ".\nSee the dashboard."), ": Invalid API Key provided: [removed] See the dashboard."},
		"e-mail address, card": {text("Not sent to ada@" + canary + ".com: 4242424242424242"), ": Not sent to [removed] [removed]"},
		"param with a secret":  {response{status: 400, body: withMessage("", clientSecret, "Unknown.")}, ": Unknown."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, confirmFailure(t, newClient(t, respond(test.response))),
				"payments: not_executed, status 400, type invalid_request_error, request req_1"+test.want)
		})
	}
}

// FuzzOperatorMessage checks that no text around a secret brings it into an error, a log
// or a row.
func FuzzOperatorMessage(f *testing.F) {
	for _, around := range []string{"", " ", "'", "\n", "\x00", "x", "sk_", "=", "\u00a0", "\u2028", "é", "\xff"} {
		f.Add(around, around)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, canary) {
			return
		}
		for _, secret := range []string{
			secretKey, "rk_live_" + canary, "ek_test_" + canary, webhookSecret, clientSecret, "s\x00k_test_" + canary, canary + "@example.com",
		} {
			body, err := json.Marshal(map[string]any{"error": map[string]any{"type": "invalid_request_error", "message": before + secret + after}})
			require.NoError(t, err)
			text := confirmFailure(t, newClient(t, respond(response{status: 400, body: string(body)}))).Error() // confirmFailure looks for the canary
			require.True(t, utf8.ValidString(text))
			require.NotContains(t, text, "\x00")
		}
	})
}
