package orders_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

const (
	visa         = "pm_card_visa"
	declinedCard = "pm_card_visa_chargeDeclined"

	leaseDuration = time.Minute
)

// fixture is a shop; its methods are about the order of its key.
type fixture struct {
	*orderstest.Shop
	scenario

	t         *testing.T
	key       idempotency.Key
	transport *recordingTransport
	log       *logBuffer
	responses *responseLog
}

type options struct {
	account      uuid.UUID
	connections  int32                 // default: 1, so a run that holds one blocks
	configure    func(*pgxpool.Config) // of the pool
	concurrent   bool
	unchecked    bool
	clock        func() time.Time // the provider's
	searchDelay  time.Duration    // the provider's
	eventDelay   time.Duration    // the provider's
	chargeWindow time.Duration
	lease        time.Duration
}

func newFixture(t *testing.T, o options, steps ...step) *fixture {
	t.Helper()
	if o.configure == nil {
		o.configure = func(*pgxpool.Config) {}
	}
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns = cmp.Or(o.connections, 1) }, o.configure)
	if o.account == uuid.Nil {
		o.account = uuid.New()
	}
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES ($1, 'test')", o.account)
	require.NoError(t, err)
	f := &fixture{
		t:         t,
		key:       "a-key-of-this-test",
		transport: newRecordingTransport(t, pool, !o.concurrent, !o.unchecked),
		log:       &logBuffer{},
		responses: &responseLog{},
	}
	f.Shop = orderstest.New(t, orderstest.Options{
		Pool:         pool,
		Account:      o.account,
		Logger:       slog.New(slog.NewTextHandler(f.log, nil)),
		ChargeWindow: o.chargeWindow,
		Stripe:       stripetest.Options{Clock: o.clock, SearchDelay: o.searchDelay, EventDelay: o.eventDelay},
		Payments:     payments.Config{Transport: f.transport, Logger: slog.New(slog.DiscardHandler)},
		Engine:       idempotency.Config{LeaseDuration: cmp.Or(o.lease, leaseDuration)},
	})
	f.do(steps...)
	return f
}

func (f *fixture) withKey(t *testing.T, key idempotency.Key) *fixture {
	part := *f
	part.t, part.key, part.scenario = t, key, scenario{}
	return &part
}

func (f *fixture) withNewKey(t *testing.T) *fixture {
	return f.withKey(t, idempotency.Key(uuid.NewString()))
}

const itemsJSON = `[
	{"sku":"TEA-ASSAM-250","description":"Assam tea, 250 g","quantity":2,"unit_amount":1250},
	{"sku":"MUG-BLUE","quantity":1,"unit_amount":1800}
]`

const orderAmount = 4300

func request(t testing.TB, account uuid.UUID, key idempotency.Key, paymentMethod string, moreMembers ...string) idempotency.Request {
	t.Helper()
	params, err := idempotency.Canonicalize(fmt.Appendf(nil,
		`{"email":"ada@example.com","currency":"usd","payment_method":%q,"items":%s,"metadata":{"basket":"b-77"}%s}`,
		paymentMethod, itemsJSON, strings.Join(moreMembers, "")))
	require.NoError(t, err)
	return idempotency.Request{AccountID: account, Key: key, Method: http.MethodPost, Path: "/v1/orders", Params: params}
}

func (f *fixture) create(paymentMethod string) (idempotency.Result, error) {
	f.t.Helper()
	paymentMethod = cmp.Or(paymentMethod, visa)
	if f.offSession {
		return f.sendRequest(request(f.t, f.Account, f.key, paymentMethod, `,"off_session":true`))
	}
	return f.sendRequest(request(f.t, f.Account, f.key, paymentMethod))
}

func (f *fixture) sendRequest(req idempotency.Request) (idempotency.Result, error) {
	f.t.Helper()
	result, err := f.Create(f.t.Context(), req)
	f.recordResponse(req, result, err)
	return result, err
}

func (f *fixture) resume() (idempotency.Result, error) {
	f.t.Helper()
	result, err := f.resumeKey(f.key)
	f.recordResponse(idempotency.Request{AccountID: f.Account, Key: f.key}, result, err)
	return result, err
}

func (f *fixture) resumeKey(key idempotency.Key) (idempotency.Result, error) {
	f.t.Helper()
	return f.Engine.Resume(f.t.Context(), f.Account, idempotency.KeyID(f.Account, key))
}

func (f *fixture) getOrder() orders.Order {
	f.t.Helper()
	o, err := f.Orders.Get(f.t.Context(), f.Account, orderID(f.Account, f.key))
	require.NoError(f.t, err)
	return o
}

func orderID(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", account, key)
}

// outcomeOf describes a result: its status with the codes of a failure, or the error with its
// Retry-After.
func outcomeOf(result idempotency.Result, err error) string {
	var provider *httpjson.ProviderError
	var expired *idempotency.KeyExpiredError
	var invalid *httpjson.InvalidError
	var rejected *httpjson.Rejection
	switch {
	case errors.As(err, &provider) && errors.Is(err, httpjson.ErrOutcomeUnknown):
		return "503 outcome unknown, " + provider.RetryAfter.String()
	case errors.As(err, &provider) && errors.Is(err, httpjson.ErrProviderUnavailable):
		return "503 unavailable, " + provider.RetryAfter.String()
	case errors.Is(err, idempotency.ErrActionRequired):
		return "202 action required"
	case errors.Is(err, postgres.ErrUnavailable):
		return "database unavailable"
	case errors.Is(err, idempotency.ErrInProgress):
		return "409 in progress"
	case errors.As(err, &expired):
		return "422 key expired"
	case errors.As(err, &invalid):
		return "422 invalid"
	case errors.As(err, &rejected):
		text := "422 " + rejected.Slug + ", and the key is unused"
		if rejected.Remaining > 0 {
			text += fmt.Sprintf(", %d remain", rejected.Remaining)
		}
		return text
	case err != nil:
		return err.Error()
	case result.Response.Status < 300:
		return strconv.Itoa(result.Response.Status)
	}
	var problem struct {
		Type        string `json:"type"`
		Code        string `json:"code"`
		DeclineCode string `json:"decline_code"`
	}
	if err := json.Unmarshal(result.Response.Body, &problem); err != nil {
		return err.Error()
	}
	code := cmp.Or(problem.Code, strings.TrimPrefix(problem.Type, "/problems/"))
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", result.Response.Status, code, problem.DeclineCode))
}

func (f *fixture) setLease(age time.Duration) {
	f.t.Helper()
	f.exec("UPDATE idempotency_keys SET locked_at = now() - $2::interval WHERE id = $1", idempotency.KeyID(f.Account, f.key), age)
}

func (f *fixture) backdate(age time.Duration) {
	f.t.Helper()
	f.exec("UPDATE idempotency_keys SET created_at = created_at - $2::interval WHERE id = $1", idempotency.KeyID(f.Account, f.key), age)
	f.exec("UPDATE orders SET created_at = created_at - $2::interval WHERE id = $1", orderID(f.Account, f.key), age)
}

func (f *fixture) exec(query string, arguments ...any) {
	f.t.Helper()
	_, err := f.Pool.Exec(f.t.Context(), query, arguments...)
	require.NoError(f.t, err)
}

func (f *fixture) count(query string, arguments ...any) int {
	f.t.Helper()
	var n int
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), query, arguments...).Scan(&n))
	return n
}

func newPool(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dbtest.URL(pool))
	require.NoError(t, err)
	config.MaxConns = 1
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	return other
}

func collectStrings(t *testing.T, rows pgx.Rows) []string {
	t.Helper()
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return found
}
