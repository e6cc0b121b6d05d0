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

// idempotencyKey is the key of every case. Each case has a database of its own.
const idempotencyKey = "crash-matrix-key-1"

// response is what a client sent and what it received.
type response struct {
	account     account
	key         string
	params      string
	sentAt      time.Time
	receivedAt  time.Time
	status      int // 0 if no response arrived
	body        string
	contentType string
	location    string
	replayed    bool
	exitCode    int   // of a command, which has no status
	err         error // why there is no status
}

func (r response) String() string {
	if r.status == 0 {
		return fmt.Sprintf("no response (%v)", r.err)
	}
	return fmt.Sprintf("%d %s", r.status, r.body)
}

// isFinal reports whether the response is one that is stored and replayed.
func (r response) isFinal() bool {
	switch r.status {
	case http.StatusCreated, http.StatusPaymentRequired:
		return true
	case http.StatusUnprocessableEntity:
		return strings.Contains(r.body, "/problems/payment-refused")
	default:
		return false
	}
}

// isRetryable reports whether the response tells the client to retry with the same
// key.
func (r response) isRetryable() bool {
	return r.status == http.StatusConflict || r.status == http.StatusServiceUnavailable || r.status == http.StatusAccepted
}

// webhookEvent is a delivery of the provider.
type webhookEvent struct {
	payload   []byte
	signature string
}

// webhookEvent returns an event about the refund of the case, or if there is none
// about the payment of its order.
func (h *harness) webhookEvent() webhookEvent {
	h.t.Helper()
	for _, r := range h.stripe.Refunds() {
		payload, signature, err := h.stripe.Event(webhookSecret, "refund.created", r.ID)
		require.NoError(h.t, err)
		return webhookEvent{payload, signature}
	}
	for _, i := range h.intents() {
		if i.Metadata["account_id"] == h.account.id.String() {
			payload, signature, err := h.stripe.Event(webhookSecret, "payment_intent.succeeded", i.ID)
			require.NoError(h.t, err)
			return webhookEvent{payload, signature}
		}
	}
	require.Fail(h.t, "the provider has no payment for an event to be about")
	return webhookEvent{}
}

func (e webhookEvent) send(url string) response {
	return send(url, http.MethodPost, "/v1/webhooks/stripe", account{}, string(e.payload), http.Header{"Stripe-Signature": {e.signature}})
}

// orderParams is the body of an order of two teas at 12.50.
func orderParams(email, card string) string {
	return `{"email":"` + email + `","currency":"usd","payment_method":"` + card + `",` +
		`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`
}

// post sends a request under the idempotency key: for an order, or in a flow of
// refunds for a refund.
func post(url string, from account, params string) response {
	r := send(url, http.MethodPost, from.path, from, params, http.Header{"Idempotency-Key": {idempotencyKey}})
	r.key = idempotencyKey
	return r
}

// post sends a request under the idempotency key and records the response.
func (h *harness) post(url string, from account, params string) response {
	r := post(url, from, params)
	h.responses = append(h.responses, r)
	return r
}

// get reads a resource and records the response, which is never final.
func (h *harness) get(url string, from account, path string) response {
	r := send(url, http.MethodGet, path, from, "", nil)
	h.responses = append(h.responses, r)
	return r
}

// send makes one request, on a connection of its own.
func send(url, method, path string, from account, body string, header http.Header) response {
	r := response{account: from, params: body, sentAt: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		r.err = err
		return r
	}
	request.Header = http.Header{"Content-Type": {"application/json"}}
	if from.apiKey != "" {
		request.Header.Set("Authorization", "Bearer "+from.apiKey)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	transport := http.Transport{DisableKeepAlives: true}
	received, err := transport.RoundTrip(request)
	if err != nil {
		r.err = err
		return r
	}
	defer received.Body.Close()
	content, err := io.ReadAll(received.Body)
	r.receivedAt = time.Now()
	if err != nil {
		r.err = err
		return r
	}
	r.status, r.body = received.StatusCode, string(content)
	r.contentType, r.location = received.Header.Get("Content-Type"), received.Header.Get("Location")
	r.replayed = received.Header.Get("Idempotent-Replayed") == "true"
	return r
}
