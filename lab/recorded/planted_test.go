package recorded

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replace returns an edit of a body.
func replace(before, after string) func(*response) {
	return func(r *response) { r.body = bytes.Replace(r.body, []byte(before), []byte(after), 1) }
}

func status(status int) func(*response) { return func(r *response) { r.status = status } }

func header(name, value string) func(*response) {
	return func(r *response) {
		r.header = maps.Clone(r.header)
		r.header.Set(name, value)
	}
}

// planted are wrong answers: of a client that takes the response for another one, of the fake, of the API and
// of the reader of events.
var planted = []struct {
	kind  string // of the example
	of    question
	edit  func(*response)
	finds string
}{
	{"decline", ofClient, status(400), "the status is 400"},
	{"decline", ofClient, status(500), "the outcome (a decline) is unknown"},
	{"decline of a card in another form", ofClient, replace(`"object":"payment_intent"`, `"object":"payment"`), "the intent of the error is missing"},
	{"failed request", ofClient, status(400), "the outcome (a failed request that is no decline) is not_executed"},
	{"failed dependency", ofClient, status(410), "whether it is repeated is false"},
	{"undocumented status", ofClient, status(424), "whether it is repeated is true"},
	{"search", ofClient, replace(`"pi_3Other"`, `"pi_3Another"`), "search is [pi_3Invented pi_3Another]"},
	{"list of events", ofClient, replace(`"evt_Other"`, `"evt_Another"`), "list of events is"},
	{"refund that failed", ofClient, replace(`"status":"failed"`, `"status":"succeeded"`), "refund is re_3Invented succeeded"},
	{"decline", ofClient, replace(`{"error":{"type":"card_error"`, `{"error":{"type":"api_error"`), "type is api_error"},
	{"decline", ofClient, replace(`"code":"card_declined"`, `"code":"expired_card"`), "code is expired_card"},
	{"decline", ofClient, replace(`insufficient_funds`, `lost_card`), "decline_code is lost_card"},
	{"decline", ofClient, replace(`"message":"Your`, `"message":"His`), "the message is His card"},
	{"decline", ofClient, replace(`"status":"requires_payment_method"`, `"status":"succeeded"`), "the outcome (a decline) is unknown"},
	{"decline with a parameter", ofClient, replace(`"param":"cvc"`, `"param":"zip"`), "param is zip"},
	{"read", ofClient, replace(`"amount":2000`, `"amount":2001`), "intent is pi_3Invented requires_payment_method 2001"},
	{"read", ofClient, replace(`"code":"card_declined"`, `"code":"expired_card"`), `"expired_card"`},
	{"action", ofClient, replace(`_secret_x`, `_secret_y`), "intent is "},
	{"confirm", ofClient, header("Idempotent-Replayed", "true"), "replayed:true"},
	{"used method", ofClient, replace(`The provided`, `A provided`), "whether an operator is needed is true"},
	{"limit of declines", ofClient, replace("card_decline_rate_limit_exceeded", "rate_limit_exceeded"), "the outcome (a decline as an invalid request) is not_executed"},
	{"unknown method", ofClient, replace(`"payment_method"`, `"customer"`), "whether an operator is needed is true"},
	{"not activated", ofClient, replace(`"message":"`, `"param":"amount","message":"`), "param is amount"},
	{"key of another request", ofClient, replace("idempotency_error", "invalid_request_error"), "type is invalid_request_error"},
	{"key in use", ofClient, status(400), "whether it is repeated is false"},
	{"API key", ofClient, status(429), "whether an operator is needed is false"},
	{"lock of a read", ofClient, status(404), "whether it is repeated is false"},
	{"error of Stripe", ofClient, status(502), "whether the response is saved is false"},
	{"cancel refused", ofClient, replace("unexpected_state", "other"), "the outcome (the state of the intent) is unknown"},
	{"confirm after a cancel", ofClient, replace(`"param":"payment_method"`, `"param":"amount"`), "param is amount"},
	{"confirm after a cancel", ofClient, replace(`payment_intent_unexpected_state`, `resource_missing`), "the outcome (the state of the intent) is refused"},
	{"action of another type", ofClient, replace(`"type":"oxxo_display_details"`, `"type":"use_stripe_sdk"`), `action:"use_stripe_sdk"`},
	{"dispute", ofClient, replace(`"status":"lost"`, `"status":"won"`), "list of disputes is"},
	{"no search", ofClient, status(429), "the outcome (the account has no search) is not_executed"},
	{"refund", ofClient, replace(`"duplicate"`, `"fraudulent"`), "refund is re_3Invented succeeded 500 usd pi_3Invented fraudulent"},
	{"list of refunds", ofClient, replace(`"has_more":true`, `"has_more":false`), "list of refunds is"},

	{"decline", ofFake, status(400), "the status is 400"},
	{"decline", ofFake, replace(`"card_error"`, `"api_error"`), "last_payment_error.type is api_error"},
	{"decline", ofFake, replace(`"code": "card_declined"`, `"code": "expired_card"`), "code is expired_card"},
	{"decline", ofFake, replace(`"insufficient_funds"`, `"lost_card"`), "decline_code is lost_card"},
	{"decline", ofFake, header("Stripe-Should-Retry", ""), "the header Stripe-Should-Retry is empty"},
	{"decline", ofFake, replace(`"status": "requires_payment_method"`, `"status": "requires_confirmation"`), "the intent's status"},
	{"decline", ofFake, replace(`"payment_method": null`, `"payment_method": "pm_1"`), "whether the intent's payment_method is null is false"},
	{"decline", ofFake, replace(`"payment_intent": {`, `"other": {`), "there is no intent"},
	{"decline with a parameter", ofFake, replace(`"param": "cvc"`, `"param": "zip"`), "is zip"},
	{"create", ofFake, replace(`"amount": 2000`, `"amount": 2001`), "amount is 2001"},
	{"create", ofFake, replace(`"order_id": "1"`, `"order_id": "2"`), "metadata is"},
	{"create", ofFake, header("Original-Request", ""), "a header Original-Request is false"},
	{"confirm", ofFake, replace(`"amount_received": 2000`, `"amount_received": 0`), "amount_received is 0"},
	{"action", ofFake, replace(`"use_stripe_sdk"`, `"other"`), "next_action"},
	{"read", ofFake, replace(`"last_payment_error": {`, `"other": {`), "last_payment_error is null is true"},
	{"limit of declines", ofFake, replace("card_decline_rate_limit_exceeded", "rate_limit_exceeded"), "code is rate_limit_exceeded"},
	{"confirm refused", ofFake, header("Stripe-Should-Retry", "false"), "the header Stripe-Should-Retry is false"},
	{"cancel refused", ofFake, header("Stripe-Should-Retry", ""), "the header Stripe-Should-Retry is empty"},
	{"confirm after a cancel", ofFake, replace(`"param": "payment_method"`, `"param": "source"`), "param is source"},
	{"cancel", ofFake, replace(`"canceled_at": `, `"later": `), "the type of canceled_at is <nil>"},
	{"cancel", ofFake, replace(`"abandoned"`, `"duplicate"`), "cancellation_reason is duplicate"},
	{"redirect", ofFake, replace(`"type": "redirect_to_url"`, `"type": "use_stripe_sdk"`), "next_action.type is use_stripe_sdk"},
	{"read of a redirect", ofFake, replace(`"type": "redirect_to_url"`, `"type": "use_stripe_sdk"`), "next_action.type is use_stripe_sdk"},
	{"action of another type", ofFake, replace(`"type": "oxxo_display_details"`, `"type": "use_stripe_sdk"`), "next_action.type is use_stripe_sdk"},
	{"dispute", ofFake, replace(`"lost"`, `"won"`), "status is won"},
	{"dispute", ofFake, replace(`"is_charge_refundable": false`, `"is_charge_refundable": true`), "is_charge_refundable is true"},
	{"dispute that is won", ofFake, replace(`"is_charge_refundable": true`, `"is_charge_refundable": false`), "is_charge_refundable is false"},
	{"permission", ofFake, header("Request-Id", "req_1"), "a header Request-Id is true"},
	{"API key", ofFake, header("WWW-Authenticate", ""), "the header WWW-Authenticate is empty"},
	{"lock of a read", ofFake, status(200), "the status is 200"},
	{"replay", ofFake, header("Idempotent-Replayed", ""), "the header Idempotent-Replayed is empty"},
	{"refund", ofFake, replace(`"succeeded"`, `"pending"`), "status is pending"},
	{"list of refunds", ofFake, replace(`"has_more": true`, `"has_more": false`), "whether there is more is false"},

	{"search", ofFake, replace(`"search_result"`, `"list"`), "the object is list"},
	{"search", ofFake, replace(`"order_id": "1"`, `"order_id": "2"`), "metadata is"},
	{"list of events", ofFake, replace(`"has_more": true`, `"has_more": false`), "whether there is more is false"},
	{"list of events", ofFake, replace(`"object": "event"`, `"object": "thing"`), "the object is thing"},
	{"refund that failed", ofFake, replace(`"status": "failed"`, `"status": "succeeded"`), "status is succeeded"},

	{"decline", ofAPI, status(422), "the status of the response is 422"},
	{"decline", ofAPI, replace(`"insufficient_funds"`, `"lost_card"`), "the decline code of the response is lost_card"},
	{"decline", ofAPI, replace(`"card_declined"`, `"expired_card"`), "the code of the response is expired_card"},

	{"event of a refund", ofEvent, replace(`"evt_Invented"`, `"evt_Other"`), "the event is evt_Other"},
	{"event of a refund", ofEvent, replace(`"pi_3Invented"`, `"pi_3Other"`), "pi_3Other"},
	{"event of a refund", ofEvent, replace(`charge.refund.updated`, `charge.updated`), "the event is evt_Invented charge.updated"},
	{"event of a refund", ofEvent, replace(`"object":"event"`, `"object":"thing"`), "not an event of the provider"},
	{"event of a refund that failed", ofEvent, replace(`"payment_intent":"pi_3Invented"`, `"payment_intent":5`), "the event is"},
	{"event of a dispute", ofEvent, replace(`"payment_intent":null,`, ``), "the event is"},
	{"event of a payment", ofEvent, replace(`"order_id":"1"`, `"order_id":"2"`), "map[order_id:2]"},
}

// The examples show no difference, and each wrong answer is found.
func TestPlanted(t *testing.T) {
	t.Parallel()
	all := read(t, "testdata/examples.jsonl")
	require.Empty(t, run(t, all, honest).differences)
	s := newShop(t)
	for _, p := range planted {
		i := slices.IndexFunc(all, func(e exchange) bool { return e.Kind == p.kind })
		require.GreaterOrEqual(t, i, 0, p.kind)
		e, r, edited := all[i], newReport(), false
		edit := func(q question, _ exchange, answer *response) {
			if q != p.of {
				return
			}
			before := response{answer.status, answer.header.Clone(), bytes.Clone(answer.body)}
			p.edit(answer)
			edited = edited || before.status != answer.status || !bytes.Equal(before.body, answer.body) || !equalHeaders(before.header, answer.header)
		}
		switch p.of {
		case ofClient:
			askClient(t, r, e.listed(), edit)
		case ofFake:
			askFake(t, r, e.listed(), edit)
		case ofAPI:
			askAPI(r, s, e, edit)
		case ofEvent:
			askEvent(r, s, e, edit)
		}
		require.True(t, edited, "%s of %q: the plant changes nothing", p.finds, p.kind)
		require.Contains(t, strings.Join(r.differences, "\n"), p.finds, "%s, %s", p.kind, p.of)
	}
}

// Each status that is an error has a row in the table, whatever the type of the error is.
func TestOutcomes_eachStatus(t *testing.T) {
	t.Parallel()
	r := newReport()
	for status := http.StatusBadRequest; status <= http.StatusGatewayTimeout; status++ {
		if http.StatusText(status) == "" && status != 499 {
			continue
		}
		for _, kind := range []string{"api_error", "card_error", "idempotency_error", "invalid_request_error"} {
			for method, path := range map[string]string{http.MethodGet: "/v1/payment_intents/pi_3Invented", http.MethodPost: "/v1/payment_intents/pi_3Invented/confirm"} {
				e := exchange{Kind: kind, Method: method, Path: path, Status: status, at: fmt.Sprintf("%s %d", method, status)}
				e.Body = object{"error": map[string]any{"type": kind, "message": "A text."}}
				e.Raw = e.Body.encode()
				askClient(t, r, e, honest)
			}
		}
	}
	require.Empty(t, r.differences)
}

// A response that two recordings have counts once.
func TestRead_repeated(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/examples.jsonl")
	require.NoError(t, err)
	folder := t.TempDir()
	for _, name := range []string{"a.jsonl", "b.jsonl"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	require.Len(t, read(t, folder), len(read(t, "testdata")))
}

func equalHeaders(a, b http.Header) bool { return maps.EqualFunc(a, b, slices.Equal) }
