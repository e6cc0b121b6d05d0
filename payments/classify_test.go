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

// classified holds the fields of an error that orders uses.
type classified struct {
	outcome         payments.Outcome
	replayedError   bool
	unexpectedState bool
	needsOperator   bool
	retryAfter      time.Duration
	message         string
	attempts        int
}

func stripeError(kind, code, more string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"message":"Text for the customer."%s}}`, kind, code, more)
}

// noMethodForCurrency is Stripe's text for an account that is not set up.
const noMethodForCurrency = "No valid payment method types for this Payment Intent. Please ensure that you have activated payment methods " +
	"compatible with your chosen currency in your dashboard (https://dashboard.stripe.com/settings/payments)."

const methodOfCustomer = "The `payment_method` parameter supplied pm_1 belongs to the Customer cus_1. " +
	"Please include the Customer in the `customer` parameter on the PaymentIntent."

func withMessage(code, param, message string) string {
	return fmt.Sprintf(`{"error":{"type":"invalid_request_error","code":%q,"param":%q,"message":%q}}`, code, param, message)
}

func TestClassify(t *testing.T) {
	t.Parallel()
	const (
		invalid = "invalid_request_error"
		text    = "Text for the customer."
		sec     = time.Second
	)
	embedded := `,"payment_intent":` + intent("requires_payment_method")
	var (
		declined         = classified{outcome: payments.Declined, message: text, attempts: 1}
		declinedSilently = classified{outcome: payments.Declined, attempts: 1} // the text may contain a secret
		refused          = classified{outcome: payments.Refused, message: text, attempts: 1}
		// An account that is not set up, or a bug.
		ourFault     = classified{outcome: payments.NotExecuted, needsOperator: true, retryAfter: 60 * sec, attempts: 1}
		unknownFault = classified{outcome: payments.Unknown, needsOperator: true, retryAfter: 60 * sec, attempts: 1}
		retried      = classified{outcome: payments.Unknown, retryAfter: 2 * sec, attempts: 3}
	)
	for name, test := range map[string]struct {
		response response
		want     classified
	}{
		"card declined": {response{status: 402, body: stripeError("card_error", "card_declined", `,"decline_code":"insufficient_funds"`+embedded)}, declined},
		"card expired, without decline code and intent": {response{status: 402, body: stripeError("card_error", "expired_card", "")}, declined},
		"processing error of the card network":          {response{status: 402, body: stripeError("card_error", "processing_error", embedded)}, declined},
		"card requires authentication":                  {response{status: 402, body: stripeError("card_error", "authentication_required", embedded)}, declined},
		"decline whose message quotes a client secret":  {response{status: 402, body: strings.Replace(stripeError("card_error", "card_declined", ""), "the customer", clientSecret, 1)}, declinedSilently},
		"decline whose message quotes an API key":       {response{status: 402, body: strings.Replace(stripeError("card_error", "card_declined", ""), "the customer", secretKey, 1)}, declinedSilently},
		"decline about another intent":                  {response{status: 402, body: stripeError("card_error", "card_declined", strings.Replace(embedded, `"pi_1"`, `"pi_2"`, 1))}, unknownFault},
		"decline of an intent that succeeded":           {response{status: 402, body: stripeError("card_error", "card_declined", `,"payment_intent":`+intent("succeeded"))}, retried},
		"402 without a card error":                      {response{status: 402, body: stripeError(invalid, "", "")}, retried},

		"unknown payment method":                             {response{status: 400, body: stripeError(invalid, "resource_missing", `,"param":"payment_method"`)}, refused},
		"used payment method":                                {response{status: 400, body: `{"error":{"type":"invalid_request_error","message":"The provided PaymentMethod was previously used."}}`}, classified{outcome: payments.Refused, message: "The provided PaymentMethod was previously used.", attempts: 1}},
		"amount too small":                                   {response{status: 400, body: stripeError(invalid, "amount_too_small", "")}, refused},
		"amount of zero":                                     {response{status: 400, body: stripeError(invalid, "parameter_invalid_integer", `,"param":"amount"`)}, refused},
		"payment method of a customer":                       {response{status: 400, body: withMessage("parameter_missing", "source", methodOfCustomer)}, classified{outcome: payments.Refused, message: methodOfCustomer, attempts: 1}},
		"payment method of another kind":                     {response{status: 400, body: stripeError(invalid, "payment_intent_incompatible_payment_method", "")}, refused},
		"charge already refunded":                            {response{status: 400, body: stripeError(invalid, "charge_already_refunded", "")}, refused},
		"charge disputed":                                    {response{status: 400, body: stripeError(invalid, "charge_disputed", "")}, refused},
		"refund of a disputed payment":                       {response{status: 400, body: stripeError(invalid, "refund_disputed_payment", "")}, refused},
		"charge not refundable":                              {response{status: 400, body: stripeError(invalid, "charge_not_refundable", "")}, refused},
		"refund too high":                                    {response{status: 400, body: stripeError(invalid, "", `,"param":"amount"`)}, refused},
		"refund of an unknown intent":                        {response{status: 400, body: stripeError(invalid, "resource_missing", `,"param":"payment_intent"`)}, ourFault},
		"invalid currency":                                   {response{status: 400, body: withMessage("", "currency", "Invalid currency: xxx.")}, classified{outcome: payments.Refused, message: "Invalid currency: xxx.", attempts: 1}},
		"unknown parameter":                                  {response{status: 400, body: stripeError(invalid, "parameter_unknown", `,"param":"off_sesion"`)}, ourFault},
		"missing parameter":                                  {response{status: 400, body: stripeError(invalid, "parameter_missing", `,"param":"amount"`)}, ourFault},
		"other 400":                                          {response{status: 400, body: stripeError(invalid, "", "")}, ourFault},
		"other 400 of a charged intent":                      {response{status: 400, body: stripeError(invalid, "", `,"payment_intent":`+intent("succeeded"))}, unknownFault},
		"other 400 that Stripe replays":                      {response{status: 400, body: stripeError(invalid, "", ""), header: http.Header{"Idempotent-Replayed": {"true"}}}, classified{outcome: payments.NotExecuted, replayedError: true, needsOperator: true, retryAfter: 60 * sec, attempts: 1}},
		"no payment method for the currency":                 {response{status: 400, body: withMessage("", "", noMethodForCurrency)}, ourFault},
		"no payment method for the currency, with a code":    {response{status: 400, body: withMessage("payment_intent_invalid_parameter", "", noMethodForCurrency)}, ourFault},
		"no payment method for the currency, which is named": {response{status: 400, body: withMessage("payment_intent_invalid_parameter", "currency", noMethodForCurrency)}, ourFault},
		"payment method not activated":                       {response{status: 400, body: stripeError(invalid, "payment_method_unactivated", `,"param":"payment_method"`)}, ourFault},
		"live charges not enabled":                           {response{status: 400, body: withMessage("", "", "Your account cannot currently make live charges.")}, ourFault},
		"account invalid":                                    {response{status: 400, body: stripeError(invalid, "account_invalid", "")}, ourFault},
		"test mode only":                                     {response{status: 400, body: stripeError(invalid, "testmode_charges_only", `,"param":"amount"`)}, ourFault},
		"country not supported":                              {response{status: 400, body: stripeError(invalid, "country_unsupported", "")}, ourFault},
		"platform account required":                          {response{status: 400, body: stripeError(invalid, "platform_account_required", "")}, ourFault},
		"another mode":                                       {response{status: 400, body: stripeError(invalid, "livemode_mismatch", `,"param":"payment_method"`)}, ourFault},
		"API version unknown":                                {response{status: 400, body: withMessage("", "", "Invalid Stripe API version: 2024-06-20.")}, ourFault},
		"TLS version unsupported":                            {response{status: 400, body: stripeError(invalid, "tls_version_unsupported", "")}, ourFault},
		"balance too low for a refund":                       {response{status: 400, body: stripeError(invalid, "balance_insufficient", `,"param":"amount"`)}, ourFault},
		"intent in another state":                            {response{status: 400, body: stripeError(invalid, "payment_intent_unexpected_state", `,"payment_intent":`+intent("succeeded"))}, classified{outcome: payments.Unknown, unexpectedState: true, retryAfter: 2 * sec, attempts: 1}},
		"key used with other parameters":                     {response{status: 400, body: `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters."}}`}, unknownFault},

		"API key unknown":                {response{status: 401, body: fmt.Sprintf(`{"error":{"type":"invalid_request_error","message":"Invalid API Key provided: %s"}}`, secretKey)}, ourFault},
		"API key without the permission": {response{status: 403, body: stripeError(invalid, "", "")}, ourFault},
		"intent unknown":                 {response{status: 404, body: stripeError(invalid, "resource_missing", `,"param":"intent"`)}, ourFault},
		"URL unknown":                    {response{status: 404, body: stripeError(invalid, "", "")}, ourFault},

		"key in use":                  {response{status: 409, body: stripeError(invalid, "idempotency_key_in_use", "")}, retried},
		"other conflict":              {response{status: 409, body: stripeError(invalid, "", "")}, retried},
		"intent locked":               {response{status: 429, body: stripeError(invalid, "lock_timeout", "")}, classified{outcome: payments.NotExecuted, retryAfter: 1 * sec, attempts: 3}},
		"rate limit":                  {response{status: 429, body: stripeError(invalid, "rate_limit", "")}, classified{outcome: payments.NotExecuted, retryAfter: 2 * sec, attempts: 3}},
		"rate limit with Retry-After": {response{status: 429, body: stripeError(invalid, "rate_limit", ""), header: http.Header{"Retry-After": {"7"}}}, classified{outcome: payments.NotExecuted, retryAfter: 7 * sec, attempts: 3}},
		"Retry-After over an hour":    {response{status: 429, body: stripeError(invalid, "rate_limit", ""), header: http.Header{"Retry-After": {"9000000000000"}}}, classified{outcome: payments.NotExecuted, retryAfter: time.Hour, attempts: 1}},
		"429 from a proxy":            {response{status: 429, body: "<html>slow down"}, retried},

		"500 that Stripe stores":            {response{status: 500, body: stripeError("api_error", "", "")}, classified{outcome: payments.Unknown, replayedError: true, retryAfter: 30 * sec, attempts: 1}},
		"500 from a proxy":                  {response{status: 500, body: "<html>oops"}, retried},
		"500 of another type":               {response{status: 500, body: stripeError(invalid, "", "")}, retried},
		"502 in HTML":                       {response{status: 502, body: "<html>" + clientSecret}, retried},
		"503 in Stripe's format":            {response{status: 503, body: stripeError("api_error", "", "")}, retried},
		"504 without a body":                {response{status: 504}, retried},
		"400 in HTML":                       {response{status: 400, body: "<html>bad request"}, retried},
		"401 in HTML":                       {response{status: 401, body: "<html>proxy login"}, retried},
		"402 without a body":                {response{status: 402}, retried},
		"402 of an unknown type":            {response{status: 402, body: stripeError("something_new", "card_declined", "")}, retried},
		"error without a type":              {response{status: 400, body: `{"error":{"message":"` + clientSecret + `"}}`}, retried},
		"error that is null":                {response{status: 402, body: `{"error":null,"x":"` + clientSecret + `"}`}, retried},
		"error with an undocumented status": {response{status: 418, body: stripeError(invalid, "", "")}, retried},

		"redirect":                             {response{status: 307, body: intent("succeeded"), header: http.Header{"Location": {"/" + clientSecret}}}, unknownFault},
		"success with another status than 200": {response{status: 202, body: intent("succeeded")}, retried},
		"200 without a body":                   {response{status: 200}, retried},
		"200 in HTML":                          {response{status: 200, body: "<html>" + clientSecret}, retried},
		"200 with an empty object":             {response{status: 200, body: "{}"}, retried},
		"200 with null":                        {response{status: 200, body: "null"}, retried},
		"200 with the id only":                 {response{status: 200, body: `"pi_1"`}, retried},
		"200 with another object":              {response{status: 200, body: strings.Replace(intent("succeeded"), `"payment_intent"`, `"charge"`, 1)}, retried},
		"200 without the id":                   {response{status: 200, body: strings.Replace(intent("succeeded"), `"pi_1"`, `""`, 1)}, retried},
		"200 with a wrong JSON type":           {response{status: 200, body: strings.Replace(intent("succeeded"), "2500", `"2500"`, 1)}, retried},
		"200 with an error in it":              {response{status: 200, body: stripeError("card_error", "card_declined", "")}, retried},
		"200 larger than 1 MiB":                {response{status: 200, body: strings.Repeat(" ", 1<<20) + intent("succeeded")}, retried},
		"200 about another intent":             {response{status: 200, body: strings.Replace(intent("succeeded"), `"pi_1"`, `"pi_2"`, 1)}, unknownFault},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, test.response)
			got, err := newClient(t, provider.url).Confirm(t.Context(), confirmKey, "pi_1", true)
			e := failure(t, err)
			require.Equal(t, test.want, classified{
				e.Outcome, e.ReplayedError, e.UnexpectedState, e.NeedsOperator, e.RetryAfter, e.Message, len(provider.seen()),
			}, e)
			require.Zero(t, got)
			require.Equal(t, test.response.status, e.HTTPStatus)
			require.Equal(t, "req_1", e.RequestID)
			for _, r := range provider.seen() {
				require.Equal(t, confirmKey, r.header.Get("Idempotency-Key"))
			}
		})
	}
}

func TestClassify_declineDetails(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, response{status: 402, body: stripeError("card_error", "card_declined",
		`,"decline_code":"insufficient_funds","param":"number","payment_intent":`+intent("requires_payment_method"))})

	e := confirmFailure(t, newClient(t, provider.url))
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

func TestClassify_noSecrets(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf(`{"error":{"type":"card_error","code":%[1]q,"decline_code":%[2]q,"param":%[2]q,"message":%[1]q,`+
		`"payment_intent":{"id":"pi_1","object":"payment_intent","status":"requires_payment_method","amount":1,"currency":"eur",`+
		`"client_secret":%[1]q,"last_payment_error":{"type":"card_error","code":%[1]q,"decline_code":%[2]q,"message":%[1]q}}}}`,
		clientSecret, secretKey)
	provider := startProvider(t, response{status: 402, body: body, header: http.Header{"Request-Id": {secretKey}}})

	e := confirmFailure(t, newClient(t, provider.url))
	require.Equal(t, payments.Declined, e.Outcome)
	require.Equal(t, &payments.Decline{}, e.Intent.LastError)
}

func TestClassify_invisibleCharacters(t *testing.T) {
	t.Parallel()
	const text = `Sorry\u0000,\u001b[31m no\u2028.`
	provider := startProvider(t, response{status: 402, body: `{"error":{"type":"card_error","code":"card\u0000_declined",` +
		`"decline_code":"\nfraudulent","message":"` + text + `","payment_intent":` +
		strings.Replace(intent("requires_payment_method"), `"client_secret"`,
			`"last_payment_error":{"type":"card_error","code":"card_declined\u0007","message":"`+text+`"},"client_secret"`, 1) + `}}`})

	e := confirmFailure(t, newClient(t, provider.url))
	require.Equal(t, "card_declined", e.Code)
	require.Equal(t, "fraudulent", e.DeclineCode)
	require.Equal(t, "Sorry,[31m no.", e.Message)
	require.Equal(t, &payments.Decline{Code: "card_declined", Message: "Sorry,[31m no."}, e.Intent.LastError)
}

func TestClassify_operatorMessage(t *testing.T) {
	t.Parallel()
	const ids = "payments: not executed, status %d, type invalid_request_error, request req_1"
	text := func(message string) string { return withMessage("", "", message) }
	for name, test := range map[string]struct {
		response response
		want     string
	}{
		"account not set up": {response{status: 400, body: text(noMethodForCurrency)}, fmt.Sprintf(ids, 400) + ": " + noMethodForCurrency},
		"API key in it": {
			response{status: 401, body: text("Invalid API Key provided: " + secretKey + ".\nSee the dashboard.")},
			fmt.Sprintf(ids, 401) + ": Invalid API Key provided: [removed] See the dashboard.",
		},
		"e-mail address and card number in it": {
			response{status: 400, body: text("Not sent to ada@" + canary + ".com: 4242424242424242")},
			fmt.Sprintf(ids, 400) + ": Not sent to [removed] [removed]",
		},
		"too long":             {response{status: 400, body: text(strings.Repeat("é", 301))}, fmt.Sprintf(ids, 400) + ": " + strings.Repeat("é", 299) + "…"},
		"param with a secret":  {response{status: 400, body: withMessage("", clientSecret, "Unknown.")}, fmt.Sprintf(ids, 400) + ": Unknown."},
		"no operator required": {response{status: 429, body: text("Slow down.")}, fmt.Sprintf(ids, 429)},
		"decline": {
			response{status: 402, body: stripeError("card_error", "card_declined", "")},
			"payments: declined, status 402, type card_error, code card_declined, request req_1",
		},
		"decline about another intent": {
			response{status: 402, body: stripeError("card_error", "", `,"payment_intent":`+strings.Replace(intent("requires_payment_method"), `"pi_1"`, `"pi_2"`, 1))},
			"payments: unknown, status 402, type card_error, request req_1: response about another payment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, confirmFailure(t, newClient(t, startProvider(t, test.response).url)), test.want)
		})
	}
}

func TestClassify_missingIntent(t *testing.T) {
	t.Parallel()
	get := func(c *payments.Client) error { _, err := c.Get(t.Context(), "pi_1"); return err }
	list := func(c *payments.Client) error { _, err := c.ListRefunds(t.Context(), "pi_1"); return err }
	confirm := func(c *payments.Client) error { _, err := c.Confirm(t.Context(), confirmKey, "pi_1", true); return err }
	create := func(c *payments.Client) error { _, err := c.Create(t.Context(), createKey, createParams); return err }
	missing := func(status int, param string) response {
		return response{status: status, body: stripeError("invalid_request_error", "resource_missing", fmt.Sprintf(`,"param":%q`, param))}
	}
	live := response{status: 404, body: `{"error":{"type":"invalid_request_error","code":"resource_missing","param":"intent","message":` +
		`"No such payment_intent: 'pi_1'; a similar object exists in live mode, but a test mode key was used to make this request."}}`}
	for name, test := range map[string]struct {
		key      string
		call     func(*payments.Client) error
		response response
		want     bool
	}{
		"get":                    {secretKey, get, missing(404, "intent"), true},
		"get, restricted key":    {"rk_test_" + canary, get, missing(404, "intent"), true},
		"confirm":                {secretKey, confirm, missing(404, "intent"), true},
		"list of refunds":        {secretKey, list, missing(400, "payment_intent"), true},
		"get, live key":          {"sk_live_" + canary, get, missing(404, "intent"), false},
		"get, unknown key":       {"sk_" + canary, get, missing(404, "intent"), false},
		"get, intent of live":    {secretKey, get, live, false},
		"get, URL unknown":       {secretKey, get, response{status: 404, body: stripeError("invalid_request_error", "", "")}, false},
		"confirm, no such card":  {secretKey, confirm, missing(400, "payment_method"), false},
		"create, no such intent": {secretKey, create, missing(404, "intent"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := startProvider(t, test.response)
			client := newClient(t, provider.url, func(c *payments.Config) { c.SecretKey = test.key })
			e := failure(t, test.call(client))
			require.Equal(t, test.want, e.IntentMissing)
		})
	}
}
