package reconcile_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

const (
	createIntent = "POST /v1/payment_intents"
	confirm      = "POST /v1/payment_intents/{id}/confirm"
	cancel       = "POST /v1/payment_intents/{id}/cancel"
	getIntent    = "GET /v1/payment_intents/{id}"
	listIntents  = "GET /v1/payment_intents"
	makeRefund   = "POST /v1/refunds"
	listRefunds  = "GET /v1/refunds"

	visa          = "pm_card_visa"
	declinedCard  = "pm_card_visa_chargeDeclined"
	challengeCard = "pm_card_threeDSecure2Required"
	pendingRefund = "pm_card_pendingRefund"
	refundFail    = "pm_card_refundFail"

	orderKey  idempotency.Key = "the-key-of-the-order"
	refundKey idempotency.Key = "the-key-of-the-refund"
	amount                    = 4300

	webhookSecret = "whsec_reconcile"
	grace         = 5 * time.Minute
)

// fixture is an orders service with a database and a fake provider. Its order has orderKey,
// its refund refundKey.
type fixture struct {
	t         *testing.T
	service   *orders.Service
	engine    *idempotency.Engine
	payments  *payments.Client
	pool      *pgxpool.Pool
	stripe    *stripetest.Server
	transport *transport
	account   uuid.UUID
	seen      int // provider requests before the last forget
}

// newFixture returns a fixture whose provider's clock is late by lag. With one connection, a
// run that holds one blocks.
func newFixture(t *testing.T, lag time.Duration, conns int32) *fixture {
	t.Helper()
	f := &fixture{
		t:      t,
		pool:   idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns = conns }),
		stripe: stripetest.New(stripetest.Options{Clock: func() time.Time { return time.Now().Add(-lag) }}),
	}
	server := httptest.NewServer(f.stripe)
	t.Cleanup(server.Close)
	t.Cleanup(f.stripe.Close)
	f.account = idempotencytest.Account(t, f.pool)
	f.transport = &transport{base: &http.Transport{DisableKeepAlives: true}, pool: f.pool, alone: conns == 1}
	logger := slog.New(slog.DiscardHandler)
	var err error
	f.payments, err = payments.New(payments.Config{
		SecretKey: "sk_test_reconcile", WebhookSecret: webhookSecret, BaseURL: server.URL, Timeout: 20 * time.Second,
		Transport: f.transport, Backoff: time.Millisecond, Logger: logger,
	})
	require.NoError(t, err)
	t.Cleanup(f.payments.Close)
	f.engine, err = idempotency.New(f.pool, idempotency.Config{LockTimeout: time.Minute, Clock: time.Now, Logger: logger})
	require.NoError(t, err)
	f.service, err = orders.New(orders.Config{
		Engine: f.engine, Pool: f.pool, Payments: f.payments, StepTimeout: 20 * time.Second, ChargeWindow: 24 * time.Hour, Logger: logger,
	})
	require.NoError(t, err)
	return f
}

// newOldFixture returns a fixture that has done the steps. Its provider's clock is an hour
// late, until age.
func newOldFixture(t *testing.T, steps ...step) *fixture {
	t.Helper()
	f := newFixture(t, time.Hour, 1)
	f.do(steps...)
	return f
}

// age makes all rows an hour older, and advances the provider's clock to the present.
func (f *fixture) age() {
	f.t.Helper()
	f.stripe.Advance(time.Hour)
	f.exec(`
UPDATE idempotency_keys
   SET created_at  = created_at - interval '1 hour',
       last_run_at = last_run_at - interval '1 hour',
       locked_at   = locked_at - interval '1 hour',
       finished_at = finished_at - interval '1 hour'`)
	f.exec("UPDATE orders SET created_at = created_at - interval '1 hour', paid_at = paid_at - interval '1 hour'")
	f.exec("UPDATE refunds SET created_at = created_at - interval '1 hour'")
}

type step func(*fixture)

func (f *fixture) do(steps ...step) {
	f.t.Helper()
	for _, step := range steps {
		step(f)
	}
}

func fault(kind stripetest.Fault, call string) step {
	return func(f *fixture) {
		f.stripe.Inject(stripetest.Rule{Fault: kind, Endpoint: call, Times: stripetest.Always})
	}
}

func (f *fixture) exec(query string, arguments ...any) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), query, arguments...)
	require.NoError(f.t, err)
}

func (f *fixture) rows() []string {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `
SELECT o::text FROM orders o UNION ALL SELECT r::text FROM refunds r UNION ALL SELECT k::text FROM idempotency_keys k ORDER BY 1`)
	require.NoError(f.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f.t, err)
	return list
}

func orderID(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", account, key)
}

func request(t testing.TB, account uuid.UUID, key idempotency.Key, path, body string) orders.Request {
	t.Helper()
	params, err := idempotency.Canonicalize([]byte(body))
	require.NoError(t, err)
	return orders.Request{Request: idempotency.Request{
		AccountID: account, Key: key, Method: http.MethodPost, Path: path, Params: params,
	}}
}

func orderRequest(t testing.TB, account uuid.UUID, key idempotency.Key, card string) orders.Request {
	t.Helper()
	return request(t, account, key, "/v1/orders", fmt.Sprintf(
		`{"email":"ada@example.com","currency":"usd","payment_method":%q,"items":[{"sku":"TEA","quantity":1,"unit_amount":%d}]}`, card, amount))
}

func (f *fixture) create(card string) int {
	f.t.Helper()
	result, _ := f.service.Create(f.t.Context(), orderRequest(f.t, f.account, orderKey, card))
	return result.Response.Status
}

// intentID returns the recorded intent of the only order.
func (f *fixture) intentID() (id string) {
	f.t.Helper()
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT payment_intent_id FROM orders").Scan(&id))
	return id
}

func (f *fixture) refund() int {
	f.t.Helper()
	order := orderID(f.account, orderKey)
	result, _ := f.service.Refund(f.t.Context(), order,
		request(f.t, f.account, refundKey, "/v1/orders/"+order.String()+"/refunds", `{"amount":1800}`))
	return result.Response.Status
}

func (f *fixture) settle(success bool) {
	f.t.Helper()
	require.NoError(f.t, f.stripe.Settle(f.stripe.Refunds()[0].ID, success))
}

func (f *fixture) deleteOrder(account uuid.UUID, key idempotency.Key) {
	f.t.Helper()
	id := orderID(account, key)
	f.exec("DELETE FROM staged_jobs WHERE args->>'order_id' = $1", id.String())
	f.exec("DELETE FROM audit_records WHERE resource_id = $1", id.String())
	f.exec("DELETE FROM orders WHERE id = $1", id)
	f.exec("DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(account, key))
}

// createLost returns the id of an order whose rows are lost.
func (f *fixture) createLost(key idempotency.Key, card string) uuid.UUID {
	f.t.Helper()
	_, err := f.service.Create(f.t.Context(), orderRequest(f.t, f.account, key, card))
	require.NoError(f.t, err)
	f.deleteOrder(f.account, key)
	return orderID(f.account, key)
}

// post sends a request to the provider that does not come from our service.
func (f *fixture) post(path string, form url.Values) (id string) {
	f.t.Helper()
	req := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Authorization", "Bearer sk_test_dashboard")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	f.stripe.ServeHTTP(recorder, req)
	require.Equal(f.t, http.StatusOK, recorder.Code, recorder.Body.String())
	var object struct {
		ID string `json:"id"`
	}
	require.NoError(f.t, json.Unmarshal(recorder.Body.Bytes(), &object))
	return object.ID
}

// form applies changes to defaults. An empty value removes a parameter.
func form(defaults map[string]string, changes ...string) url.Values {
	values := url.Values{}
	for name, value := range defaults {
		values.Set(name, value)
	}
	for change := range slices.Chunk(changes, 2) {
		if values.Set(change[0], change[1]); change[1] == "" {
			values.Del(change[0])
		}
	}
	return values
}

func (f *fixture) insertIntent(changes ...string) string {
	f.t.Helper()
	return f.post("/v1/payment_intents", form(map[string]string{
		"amount": fmt.Sprint(amount), "currency": "usd", "payment_method": visa,
		"metadata[account_id]":                       f.account.String(),
		"metadata[order_id]":                         orderID(f.account, orderKey).String(),
		"metadata[idempotency_key_id]":               idempotency.KeyID(f.account, orderKey).String(),
		"automatic_payment_methods[enabled]":         "true",
		"automatic_payment_methods[allow_redirects]": "never",
	}, changes...))
}

func (f *fixture) insertCharge(changes ...string) string {
	f.t.Helper()
	return f.insertIntent(append([]string{"confirm", "true", "off_session", "true"}, changes...)...)
}

func (f *fixture) insertForeignIntent(changes ...string) string {
	f.t.Helper()
	return f.post("/v1/payment_intents", form(map[string]string{"amount": "500", "currency": "usd"}, changes...))
}

func (f *fixture) insertRefund(changes ...string) string {
	f.t.Helper()
	return f.post("/v1/refunds", form(map[string]string{"payment_intent": f.stripe.Charges()[0].IntentID, "amount": "7"}, changes...))
}

func (f *fixture) config() reconcile.Config {
	return reconcile.Config{
		Orders: f.service,
		Since:  48 * time.Hour, Grace: grace,
	}
}

func (f *fixture) run(change func(*reconcile.Config)) (reconcile.Report, error) {
	f.t.Helper()
	config := f.config()
	change(&config)
	return reconcile.Run(f.t.Context(), config)
}

func (f *fixture) reconcile(fix bool) reconcile.Report {
	f.t.Helper()
	report, err := f.run(func(c *reconcile.Config) { c.Fix = fix })
	require.NoError(f.t, err)
	require.NotNil(f.t, report.Discrepancies)
	require.Empty(f.t, f.transport.violations())
	return report
}

func (f *fixture) discrepancies() []string {
	f.t.Helper()
	return inWords(f.reconcile(false))
}

var (
	anyID   = regexp.MustCompile(`(pi|req|re)_[A-Z0-9]+|[0-9a-f]{8}-[0-9a-f-]{27}`)
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
)

func inWords(report reconcile.Report) []string {
	var list []string
	for _, d := range report.Discrepancies {
		text := string(d.Kind) + ": " + d.Detail
		switch {
		case d.Fixed:
			text += " => fixed"
		case d.FixError != "":
			text += " => not fixed: " + d.FixError
		}
		list = append(list, anyTime.ReplaceAllString(anyID.ReplaceAllString(text, "ID"), "TIME"))
	}
	return list
}

func (f *fixture) forget() { f.seen = len(f.stripe.Requests()) }

func (f *fixture) calls() map[string]int {
	calls := map[string]int{}
	for _, r := range f.stripe.Requests()[f.seen:] {
		calls[r.Endpoint]++
	}
	return calls
}

// transport checks that no connection is held during a call (R6).
type transport struct {
	base  http.RoundTripper
	pool  *pgxpool.Pool
	alone bool // calls are sequential, so the pool must be idle

	mu      sync.Mutex
	errs    []string
	after   map[string]func() // run once, after the first response of the endpoint
	replies map[string]string // error bodies of a 404, by endpoint
}

func (tr *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	endpoint := req.Method + " " + regexp.MustCompile(`(pi|re)_\w+`).ReplaceAllString(req.URL.Path, "{id}")
	if n := tr.pool.Stat().AcquiredConns(); tr.alone && n != 0 {
		tr.mu.Lock()
		tr.errs = append(tr.errs, fmt.Sprintf("%s while %d connections are held (R6)", endpoint, n))
		tr.mu.Unlock()
	}
	if body, ok := tr.replies[endpoint]; ok {
		return &http.Response{
			StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: req,
		}, nil
	}
	resp, err := tr.base.RoundTrip(req)
	tr.mu.Lock()
	act := tr.after[endpoint]
	delete(tr.after, endpoint)
	tr.mu.Unlock()
	if act != nil {
		act()
	}
	return resp, err
}

func (tr *transport) violations() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.errs
}
