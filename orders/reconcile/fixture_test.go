package reconcile_test

import (
	"context"
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
	"example.com/orders-api/orders/orderstest"
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
	listDisputes = "GET /v1/disputes"

	visa          = "pm_card_visa"
	declinedCard  = "pm_card_visa_chargeDeclined"
	challengeCard = "pm_card_threeDSecure2Required"
	pendingRefund = "pm_card_pendingRefund"
	refundFail    = "pm_card_refundFail"

	orderKey  idempotency.Key = "the-key-of-the-order"
	refundKey idempotency.Key = "the-key-of-the-refund"
	amount                    = 4300

	grace = 5 * time.Minute
)

type fixture struct {
	*orderstest.Shop

	t         *testing.T
	transport *transport
	killer    *killer
	seen      int
}

// killer cancels a run before or after its n-th statement or call.
type killer struct {
	mu     sync.Mutex
	n      int
	cancel context.CancelFunc
}

func (k *killer) run(ctx context.Context, n int, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.mu.Lock()
	k.n, k.cancel = n, cancel
	k.mu.Unlock()
	return run(ctx)
}

func (k *killer) step() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n--; k.n == 0 {
		k.cancel()
	}
}

func (k *killer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	k.step()
	return ctx
}
func (k *killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { k.step() }

func (k *killer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	k.step()
	return ctx
}
func (k *killer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (k *killer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     { k.step() }

// newFixture returns a fixture whose provider's clock is late by lag.
func newFixture(t *testing.T, lag time.Duration, conns int32) *fixture {
	t.Helper()
	k := &killer{}
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = conns, k })
	f := &fixture{t: t, killer: k, transport: &transport{base: &http.Transport{DisableKeepAlives: true}, pool: pool, alone: conns == 1, step: k.step}}
	f.Shop = orderstest.New(t, orderstest.Options{
		Pool:     pool,
		Stripe:   stripetest.Options{Clock: func() time.Time { return time.Now().Add(-lag) }},
		Payments: payments.Config{Transport: f.transport},
	})
	return f
}

func newPayments(t *testing.T, stripe http.Handler) *payments.Client {
	t.Helper()
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	client := payments.New(payments.Config{
		SecretKey: "sk_test_another_account", BaseURL: server.URL, Timeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(client.Close)
	return client
}

// newOldFixture returns a fixture whose provider's clock is an hour late, until age.
func newOldFixture(t *testing.T, steps ...step) *fixture {
	t.Helper()
	f := newFixture(t, time.Hour, 1)
	f.do(steps...)
	return f
}

func (f *fixture) age() {
	f.t.Helper()
	f.ageBy(time.Hour)
}

func (f *fixture) ageBy(age time.Duration) {
	f.t.Helper()
	f.Stripe.Advance(age)
	f.exec(`
UPDATE idempotency_keys
   SET created_at  = created_at - $1::interval,
       updated_at = updated_at - $1::interval,
       locked_at   = locked_at - $1::interval,
       finished_at = finished_at - $1::interval`, age)
	f.exec("UPDATE orders SET created_at = created_at - $1::interval, paid_at = paid_at - $1::interval", age)
	f.exec("UPDATE refunds SET created_at = created_at - $1::interval", age)
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
		f.Stripe.Inject(stripetest.Rule{Fault: kind, Endpoint: call, Times: stripetest.Always})
	}
}

func (f *fixture) exec(query string, arguments ...any) {
	f.t.Helper()
	_, err := f.Pool.Exec(f.t.Context(), query, arguments...)
	require.NoError(f.t, err)
}

func (f *fixture) rows() []string {
	f.t.Helper()
	rows, err := f.Pool.Query(f.t.Context(), `
SELECT o::text FROM orders o UNION ALL SELECT r::text FROM refunds r UNION ALL SELECT k::text FROM idempotency_keys k ORDER BY 1`)
	require.NoError(f.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f.t, err)
	return list
}

func orderID(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", account, key)
}

func request(t testing.TB, account uuid.UUID, key idempotency.Key, path, body string) idempotency.Request {
	t.Helper()
	params, err := idempotency.Canonicalize([]byte(body))
	require.NoError(t, err)
	return idempotency.Request{
		AccountID: account, Key: key, Method: http.MethodPost, Path: path, Params: params,
	}
}

func orderRequest(t testing.TB, account uuid.UUID, key idempotency.Key, card string) idempotency.Request {
	t.Helper()
	return request(t, account, key, "/v1/orders", fmt.Sprintf(
		`{"email":"ada@example.com","currency":"usd","payment_method":%q,"items":[{"sku":"TEA","quantity":1,"unit_amount":%d}]}`, card, amount))
}

func (f *fixture) create(card string) int {
	f.t.Helper()
	result, _ := f.Create(f.t.Context(), orderRequest(f.t, f.Account, orderKey, card))
	return result.Response.Status
}

func (f *fixture) intentID() (id string) {
	f.t.Helper()
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), "SELECT payment_intent_id FROM orders").Scan(&id))
	return id
}

func (f *fixture) settle(success bool) {
	f.t.Helper()
	require.NoError(f.t, f.Stripe.Settle(f.Stripe.Refunds()[0].ID, success))
}

func (f *fixture) deleteOrder(account uuid.UUID, key idempotency.Key) {
	f.t.Helper()
	id := orderID(account, key)
	f.exec("DELETE FROM staged_jobs WHERE args->>'order_id' = $1", id.String())
	f.exec("DELETE FROM audit_records WHERE resource_id = $1", id.String())
	f.exec("DELETE FROM orders WHERE id = $1", id)
	f.exec("DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(account, key))
}

func (f *fixture) createLost(key idempotency.Key, card string) uuid.UUID {
	f.t.Helper()
	_, err := f.Create(f.t.Context(), orderRequest(f.t, f.Account, key, card))
	require.NoError(f.t, err)
	f.deleteOrder(f.Account, key)
	return orderID(f.Account, key)
}

func (f *fixture) post(path string, form url.Values) (id string) {
	f.t.Helper()
	req := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Authorization", "Bearer sk_test_dashboard")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	f.Stripe.ServeHTTP(recorder, req)
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
		"metadata[account_id]":                       f.Account.String(),
		"metadata[order_id]":                         orderID(f.Account, orderKey).String(),
		"metadata[idempotency_key_id]":               idempotency.KeyID(f.Account, orderKey).String(),
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
	return f.post("/v1/refunds", form(map[string]string{"payment_intent": f.Stripe.Charges()[0].IntentID, "amount": "7"}, changes...))
}

func (f *fixture) run(change func(*reconcile.Options)) (reconcile.Report, error) {
	f.t.Helper()
	return f.Changes.Compare(f.t.Context(), options(change))
}

func options(change func(*reconcile.Options)) reconcile.Options {
	options := reconcile.Options{Since: 48 * time.Hour, Grace: grace}
	change(&options)
	return options
}

func (f *fixture) reconcile(fix bool) reconcile.Report {
	f.t.Helper()
	report, err := f.run(func(c *reconcile.Options) { c.Fix = fix })
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

func (f *fixture) forget() { f.seen = len(f.Stripe.Requests()) }

func (f *fixture) calls() map[string]int {
	calls := map[string]int{}
	for _, r := range f.Stripe.Requests()[f.seen:] {
		calls[r.Endpoint]++
	}
	return calls
}

// transport checks that no connection is held during a call (R6).
type transport struct {
	base  http.RoundTripper
	step  func()
	pool  *pgxpool.Pool
	alone bool

	mu      sync.Mutex
	errs    []string
	after   map[string]func() // run after the first response
	replies map[string]string // bodies of a 404
}

func (tr *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	endpoint := req.Method + " " + regexp.MustCompile(`(pi|re)_\w+`).ReplaceAllString(req.URL.Path, "{id}")
	ofJob := req.URL.Query().Has("payment_intent") // meanwhile, the worker claims another job
	if n := tr.pool.Stat().AcquiredConns(); tr.alone && !ofJob && n != 0 {
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
	tr.step()
	defer tr.step()
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

func (f *fixture) staged() (n int) {
	f.t.Helper()
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), "SELECT count(*) FROM staged_jobs WHERE kind = 'provider_change'").Scan(&n))
	return n
}
