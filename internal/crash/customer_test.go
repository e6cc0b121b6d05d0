package crash_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

type customer string

const (
	approves customer = "approves"
	declines customer = "declines"
	paysAnew customer = "pays-anew" // declines, and then pays with another card in the browser
	leaves   customer = "leaves"
)

// act has no effect if the action is not possible now. It needs no client secret, so it
// is possible before the API responds.
func (h *harness) act(does customer) {
	h.t.Helper()
	if does == "" || does == leaves {
		return
	}
	for _, i := range h.intents() {
		if i.Metadata["account_id"] != h.account.id.String() {
			continue
		}
		err := h.stripe.Authenticate(i.ID, does == approves)
		if does == paysAnew && (err == nil || i.Status == "requires_payment_method") {
			_ = h.stripe.ConfirmAsCustomer(i.ID, mastercard)
		}
	}
}

// wantStatus returns the status of the final response. A customer decides it, unless
// the payment ends first.
func (c testCase) wantStatus(h *harness) int {
	h.t.Helper()
	ids := h.query("SELECT id::text FROM orders WHERE account_id = $1", h.account.id)
	charged := slices.ContainsFunc(h.stripe.Charges(), func(ch stripetest.Charge) bool { return slices.Contains(ids, ch.OrderID) })
	if c.flow.request == cancelOf {
		if charged {
			return http.StatusUnprocessableEntity
		}
		return http.StatusOK
	}
	if c.customer != "" && (charged || c.customer == approves && !c.flow.old) {
		return http.StatusCreated
	}
	return c.flow.status
}

const (
	idempotencyKey = "crash-matrix-key-1"
	orderKey       = "the-order-of-the-request" // which is a refund or a cancel
	cancelParams   = "{}"
)

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

func (r response) isFinal() bool {
	switch r.status {
	case http.StatusCreated, http.StatusPaymentRequired:
		return true
	case http.StatusOK:
		return r.params == cancelParams
	case http.StatusUnprocessableEntity:
		return strings.Contains(r.body, "/problems/payment-refused") || strings.Contains(r.body, notCancelable) && !r.isPaidBefore()
	default:
		return false
	}
}

const notCancelable = "/problems/order-not-cancelable"

// isPaidBefore reports whether a cancel did not use its key, because the order was paid.
func (r response) isPaidBefore() bool {
	return strings.Contains(r.body, notCancelable) && strings.Contains(r.body, `"outcome":"none"`)
}

func (r response) isExpired() bool {
	return r.status == http.StatusUnprocessableEntity && strings.Contains(r.body, "/problems/idempotency-key-expired")
}

func (r response) isRetryable() bool {
	return r.status == http.StatusConflict || r.status == http.StatusServiceUnavailable || r.status == http.StatusAccepted
}

type webhookEvent struct {
	payload   []byte
	signature string
}

// webhookEvent returns an event about the refund of the case, or else about its
// payment.
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

func orderParams(email, card string) string {
	return `{"email":"` + email + `","currency":"usd","payment_method":"` + card + `",` +
		`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}],"reference":"basket-17"}`
}

func post(url string, from account, params string) response {
	r := send(url, http.MethodPost, from.path, from, params, http.Header{"Idempotency-Key": {from.key}})
	r.key = from.key
	return r
}

func (h *harness) post(url string, from account, params string) response {
	r := post(url, from, params)
	h.responses = append(h.responses, r)
	return r
}

// readStatus reads the status of the account's key.
func readStatus(url string, from account) response {
	r := send(url, http.MethodGet, "/v1/idempotency-keys/"+idempotencyKey, from, "", nil)
	r.key = idempotencyKey
	return r
}

func (h *harness) poll(url string) response {
	r := readStatus(url, h.account)
	h.responses = append(h.responses, r)
	return r
}

func (h *harness) get(url string, from account, path string) response {
	r := send(url, http.MethodGet, path, from, "", nil)
	h.responses = append(h.responses, r)
	return r
}

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
