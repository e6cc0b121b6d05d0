package orders_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

const (
	createEndpoint  = "POST /v1/payment_intents"
	confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"
	cancelEndpoint  = "POST /v1/payment_intents/{id}/cancel"
	getEndpoint     = "GET /v1/payment_intents/{id}"
	listEndpoint    = "GET /v1/payment_intents"

	visa         = "pm_card_visa"
	declinedCard = "pm_card_visa_chargeDeclined"

	lockTimeout = time.Minute
)

var clientIP = netip.MustParseAddr("203.0.113.7")

// shop is the service under test, with its own database and its own provider. Its
// methods are about the order of one key.
type shop struct {
	t       *testing.T
	key     idempotency.Key
	service *orders.Service
	engine  *idempotency.Engine
	pool    *pgxpool.Pool
	account uuid.UUID
	stripe  *stripetest.Server
	url     string // of stripe
	wire    *wire
	log     *logBuffer
	books   *books
}

// terms change what openShop does. The zero value is good for most tests.
type terms struct {
	account     uuid.UUID             // else a random one
	conns       int32                 // else 1: a run that needs a second connection, or keeps one, hangs
	configure   func(*pgxpool.Config) // changes the pool further
	crowd       bool                  // several requests run at once
	stepTimeout time.Duration         // else far more than a test takes
	clock       func() time.Time      // the provider's, else time.Now
}

func openShop(t *testing.T, terms terms) *shop {
	t.Helper()
	if terms.conns == 0 {
		terms.conns = 1
	}
	if terms.stepTimeout == 0 {
		terms.stepTimeout = 20 * time.Second
	}
	if terms.account == uuid.Nil {
		terms.account = uuid.New()
	}
	if terms.configure == nil {
		terms.configure = func(*pgxpool.Config) {}
	}
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns = terms.conns }, terms.configure)
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES ($1, 'test')", terms.account)
	require.NoError(t, err)

	// CompareBytes: a repeated request must not only mean the same (R5).
	stripe := stripetest.New(stripetest.Options{CompareBytes: true, Clock: terms.clock})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close)

	s := &shop{
		t:       t,
		key:     "a-key-of-this-test",
		pool:    pool,
		account: terms.account,
		stripe:  stripe,
		url:     server.URL,
		wire:    newWire(t, pool, !terms.crowd),
		log:     &logBuffer{},
		books:   &books{},
	}
	client, err := payments.New(payments.Config{
		SecretKey: "sk_test_shop",
		BaseURL:   server.URL,
		Timeout:   terms.stepTimeout,
		Transport: s.wire,
		Backoff:   time.Millisecond,
		Logger:    slog.New(slog.DiscardHandler),

		WebhookSecret: webhookSecret,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s.engine, err = idempotency.New(pool, idempotency.Config{
		LockTimeout: lockTimeout,
		Clock:       time.Now,
		Logger:      slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	s.service, err = orders.New(orders.Config{
		Engine:      s.engine,
		Pool:        pool,
		Payments:    client,
		StepTimeout: terms.stepTimeout,
		Logger:      slog.New(slog.NewTextHandler(s.log, nil)),
	})
	require.NoError(t, err)
	return s
}

// with is the same shop, for a part of its test that has a key of its own.
func (s *shop) with(t *testing.T, key idempotency.Key) *shop {
	part := *s
	part.t, part.key = t, key
	return &part
}

// basket is what most tests buy: 2 × 12.50 and 18.00, 43.00 in all.
const basket = `[
	{"sku":"TEA-ASSAM-250","description":"Assam tea, 250 g","quantity":2,"unit_amount":1250},
	{"sku":"MUG-BLUE","quantity":1,"unit_amount":1800}
]`

const basketAmount = 4300

func request(t testing.TB, account uuid.UUID, key idempotency.Key, paymentMethod string) orders.Request {
	t.Helper()
	params, err := idempotency.Canonicalize(fmt.Appendf(nil,
		`{"email":"ada@example.com","currency":"usd","payment_method":%q,"items":%s,"metadata":{"basket":"b-77"}}`,
		paymentMethod, basket))
	require.NoError(t, err)
	return orders.Request{
		Request: idempotency.Request{
			AccountID: account,
			Key:       key,
			Method:    http.MethodPost,
			Path:      "/v1/orders",
			Params:    params,
		},
		ClientIP: clientIP,
	}
}

// buy asks for the order, as a client does when it retries.
func (s *shop) buy(paymentMethod string) (idempotency.Result, error) {
	s.t.Helper()
	return s.create(request(s.t, s.account, s.key, paymentMethod))
}

func (s *shop) create(req orders.Request) (idempotency.Result, error) {
	s.t.Helper()
	result, err := s.service.Create(s.t.Context(), req)
	s.note(req, result, err)
	return result, err
}

// resume goes on with it, as the completer does.
func (s *shop) resume() (idempotency.Result, error) {
	s.t.Helper()
	result, err := s.service.Resume(s.t.Context(), s.account, idempotency.KeyID(s.account, s.key))
	s.note(orders.Request{Request: idempotency.Request{AccountID: s.account, Key: s.key}}, result, err)
	return result, err
}

// order reads it.
func (s *shop) order() orders.Order {
	s.t.Helper()
	o, err := s.service.Get(s.t.Context(), s.account, orderOf(s.account, s.key))
	require.NoError(s.t, err)
	return o
}

func orderOf(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", account, key)
}

// say puts an answer into words: a status, then code and decline code of a
// stored failure. An answer that is not stored says what the client is told, and
// how long to wait.
func say(result idempotency.Result, err error) string {
	var provider *orders.ProviderError
	var expired *orders.KeyExpiredError
	var invalid *orders.ValidationError
	switch {
	case errors.As(err, &provider) && errors.Is(err, orders.ErrOutcomeUnknown):
		return "unknown " + provider.RetryAfter.String()
	case errors.As(err, &provider) && errors.Is(err, orders.ErrProviderUnavailable):
		return "unavailable " + provider.RetryAfter.String()
	case errors.Is(err, idempotency.ErrInProgress):
		return "in progress"
	case errors.As(err, &expired):
		return "expired"
	case errors.As(err, &invalid):
		return "invalid"
	case err != nil:
		return err.Error()
	case result.Response.Status == http.StatusCreated:
		return "201"
	}
	var problem struct {
		Code        string `json:"code"`
		DeclineCode string `json:"decline_code"`
	}
	if err := json.Unmarshal(result.Response.Body, &problem); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", result.Response.Status, problem.Code, problem.DeclineCode))
}

// stopAt leaves the key at a recovery point, its lease given back: the provider
// takes no request of the step behind it.
func (s *shop) stopAt(endpoint, paymentMethod string) {
	s.t.Helper()
	limit := s.stripe.Inject(failing(stripetest.RateLimit, endpoint)[0])
	require.Equal(s.t, "unavailable 2s", say(s.buy(paymentMethod)))
	limit.Release()
	s.wire.forget()
}

// lease makes the key look as if a run held it, since some time ago.
func (s *shop) lease(age time.Duration) {
	s.t.Helper()
	s.exec("UPDATE idempotency_keys SET locked_at = now() - $2::interval WHERE id = $1", idempotency.KeyID(s.account, s.key), age)
}

// backDate makes the key and its order older.
func (s *shop) backDate(age time.Duration) {
	s.t.Helper()
	s.exec("UPDATE idempotency_keys SET created_at = created_at - $2::interval WHERE id = $1", idempotency.KeyID(s.account, s.key), age)
	s.exec("UPDATE orders SET created_at = created_at - $2::interval WHERE id = $1", orderOf(s.account, s.key), age)
}

func (s *shop) exec(query string, arguments ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), query, arguments...)
	require.NoError(s.t, err)
}

func (s *shop) count(query string, arguments ...any) int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), query, arguments...).Scan(&n))
	return n
}

// anotherConnection opens a pool of a test's own on the same database.
func anotherConnection(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dbtest.URL(pool))
	require.NoError(t, err)
	config.MaxConns = 1
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	return other
}

// takeUp is resume for those who have no card to name.
func (s *shop) takeUp(string) (idempotency.Result, error) {
	s.t.Helper()
	return s.resume()
}

func texts(t *testing.T, rows pgx.Rows) []string {
	t.Helper()
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return found
}

// stamp is a time as an answer has it.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
