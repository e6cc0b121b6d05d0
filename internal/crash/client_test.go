package crash_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// The idempotency key of every case. Each has a database of its own, so that
// nothing else has it.
const theKey = "crash-matrix-key-1"

// answer is what a client asked and what it was told.
type answer struct {
	account  account
	key      string
	params   string
	asked    time.Time
	told     time.Time
	status   int // 0 when no answer came
	body     string
	kind     string // Content-Type
	location string
	replayed bool
	exitCode int   // of a command, which tells nobody else
	err      error // why there is no status
}

func (a answer) String() string {
	if a.status == 0 {
		return fmt.Sprintf("no answer (%v)", a.err)
	}
	return fmt.Sprintf("%d %s", a.status, a.body)
}

// isFinal says whether an answer is one that is stored and replayed.
func (a answer) isFinal() bool {
	switch a.status {
	case http.StatusCreated, http.StatusPaymentRequired:
		return true
	case http.StatusUnprocessableEntity:
		return strings.Contains(a.body, "/problems/payment-refused")
	default:
		return false
	}
}

// later says whether the client was told to come back.
func (a answer) later() bool {
	return a.status == http.StatusConflict || a.status == http.StatusServiceUnavailable
}

// event is a delivery of the provider to the webhook.
type event struct {
	payload   []byte
	signature string
}

// event tells of the order's payment as it is now, or of its refund when there
// is one.
func (s *shop) event() event {
	s.t.Helper()
	for _, r := range s.stripe.Refunds() {
		payload, signature, err := s.stripe.Event(webhookSecret, "refund.created", r.ID)
		require.NoError(s.t, err)
		return event{payload, signature}
	}
	for _, i := range s.intents() {
		if i.Metadata["account_id"] == s.ann.id.String() {
			payload, signature, err := s.stripe.Event(webhookSecret, "payment_intent.succeeded", i.ID)
			require.NoError(s.t, err)
			return event{payload, signature}
		}
	}
	require.Fail(s.t, "there is no payment to tell of")
	return event{}
}

func (e event) send(base string) answer {
	return send(base, http.MethodPost, "/v1/webhooks/stripe", account{}, string(e.payload), http.Header{"Stripe-Signature": {e.signature}})
}

// params is the body of an order of two teas at 12.50.
func params(email, card string) string {
	return `{"email":"` + email + `","currency":"usd","payment_method":"` + card + `",` +
		`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`
}

// order asks for an order, or where the flow is one of refunds for that.
func order(base string, from account, params string) answer {
	a := send(base, http.MethodPost, from.path, from, params, http.Header{"Idempotency-Key": {theKey}})
	a.key = theKey
	return a
}

// order asks as well, and notes the answer.
func (s *shop) order(base string, from account, params string) answer {
	a := order(base, from, params)
	s.answers = append(s.answers, a)
	return a
}

// get reads something; no answer of it is final.
func (s *shop) get(base string, from account, path string) answer {
	a := send(base, http.MethodGet, path, from, "", nil)
	s.answers = append(s.answers, a)
	return a
}

// send makes one request, on a connection of its own.
func send(base, method, path string, from account, body string, header http.Header) answer {
	a := answer{account: from, params: body, asked: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	request.Header = http.Header{"Content-Type": {"application/json"}}
	if from.apiKey != "" {
		request.Header.Set("Authorization", "Bearer "+from.apiKey)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	transport := http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		a.err = err
		return a
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	a.told = time.Now()
	if err != nil {
		a.err = err
		return a
	}
	a.status, a.body = response.StatusCode, string(content)
	a.kind, a.location = response.Header.Get("Content-Type"), response.Header.Get("Location")
	a.replayed = response.Header.Get("Idempotent-Replayed") == "true"
	return a
}
