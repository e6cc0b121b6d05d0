package orderstest

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
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// Cards of the fake.
const (
	Visa          = "pm_card_visa"
	DeclinedCard  = "pm_card_visa_chargeDeclined"
	ChallengeCard = "pm_card_threeDSecure2Required"
	PendingRefund = "pm_card_pendingRefund" // its refunds are pending until [stripetest.Server.Settle]
)

const (
	// LeaseDuration is that of a fixture's engine.
	LeaseDuration = time.Minute

	// Grace is that of a fixture's completer.
	Grace = 5 * time.Minute

	// OrderAmount is what an order of a fixture costs.
	OrderAmount = 4300
)

// Operator is the one who acts on keys.
var Operator = audit.Operator{Actor: "grace", Reason: "the customer called"}

// Fixture is a shop. Its methods and the [Step]s are about the order of its key.
type Fixture struct {
	*Shop
	scenario

	T         *testing.T
	Key       idempotency.Key
	Transport *Transport
	Log       *Log

	responses *responseLog
}

// Setup changes a [Fixture].
type Setup struct {
	Account      uuid.UUID
	Connections  int32                 // default: 1, so a run that holds one blocks
	Configure    func(*pgxpool.Config) // of the pool
	Concurrent   bool                  // so the pool need not be idle during a call
	Jobs         bool                  // a worker claims them, so the pool need not be idle during a job's call
	Unchecked    bool                  // no checks during a call
	Clock        func() time.Time      // the provider's
	SearchDelay  time.Duration         // the provider's
	EventDelay   time.Duration         // the provider's
	ChargeWindow time.Duration
	Lease        time.Duration
}

// NewFixture returns a fixture after these steps.
func NewFixture(t *testing.T, o Setup, steps ...Step) *Fixture {
	t.Helper()
	if o.Configure == nil {
		o.Configure = func(*pgxpool.Config) {}
	}
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.MaxConns = cmp.Or(o.Connections, 1) }, o.Configure)
	if o.Account == uuid.Nil {
		o.Account = uuid.New()
	}
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES ($1, 'test')", o.Account)
	require.NoError(t, err)
	f := &Fixture{
		T:         t,
		Key:       "a-key-of-this-test",
		Transport: newTransport(t, pool, o),
		Log:       &Log{},
		responses: &responseLog{},
	}
	f.Shop = New(t, Options{
		Pool:         pool,
		Account:      o.Account,
		Logger:       slog.New(slog.NewTextHandler(f.Log, nil)),
		ChargeWindow: o.ChargeWindow,
		Stripe:       stripetest.Options{Clock: o.Clock, SearchDelay: o.SearchDelay, EventDelay: o.EventDelay},
		Payments:     payments.Config{Transport: f.Transport, Logger: slog.New(slog.DiscardHandler)},
		Engine:       idempotency.Config{LeaseDuration: cmp.Or(o.Lease, LeaseDuration)},
	})
	f.Do(steps...)
	return f
}

// WithKey returns the same shop with another order.
func (f *Fixture) WithKey(t *testing.T, key idempotency.Key) *Fixture {
	part := *f
	part.T, part.Key, part.scenario = t, key, scenario{}
	return &part
}

// WithNewKey is WithKey with a random key.
func (f *Fixture) WithNewKey(t *testing.T) *Fixture {
	return f.WithKey(t, idempotency.Key(uuid.NewString()))
}

const itemsJSON = `[
	{"sku":"TEA-ASSAM-250","description":"Assam tea, 250 g","quantity":2,"unit_amount":1250},
	{"sku":"MUG-BLUE","quantity":1,"unit_amount":1800}
]`

// OrderRequest returns the request of an order, with more members such as `,"off_session":true`.
func OrderRequest(t testing.TB, account uuid.UUID, key idempotency.Key, paymentMethod string, moreMembers ...string) idempotency.Request {
	t.Helper()
	params, err := idempotency.Canonicalize(fmt.Appendf(nil,
		`{"email":"ada@example.com","currency":"usd","payment_method":%q,"items":%s,"metadata":{"basket":"b-77"}%s}`,
		paymentMethod, itemsJSON, strings.Join(moreMembers, "")))
	require.NoError(t, err)
	return idempotency.Request{AccountID: account, Key: key, Method: http.MethodPost, Path: "/v1/orders", Params: params}
}

// CreateOrder sends the order.
func (f *Fixture) CreateOrder(paymentMethod string) (idempotency.Result, error) {
	f.T.Helper()
	paymentMethod = cmp.Or(paymentMethod, Visa)
	if f.offSession {
		return f.Send(OrderRequest(f.T, f.Account, f.Key, paymentMethod, `,"off_session":true`))
	}
	return f.Send(OrderRequest(f.T, f.Account, f.Key, paymentMethod))
}

// Send sends the request of an order.
func (f *Fixture) Send(req idempotency.Request) (idempotency.Result, error) {
	f.T.Helper()
	result, err := f.Create(f.T.Context(), req)
	f.RecordResponse(req, result, err)
	return result, err
}

// Resume resumes the order, as the completer does.
func (f *Fixture) Resume() (idempotency.Result, error) {
	f.T.Helper()
	result, err := f.ResumeKey(f.Key)
	f.RecordResponse(idempotency.Request{AccountID: f.Account, Key: f.Key}, result, err)
	return result, err
}

// ResumeKey resumes another key.
func (f *Fixture) ResumeKey(key idempotency.Key) (idempotency.Result, error) {
	f.T.Helper()
	return f.Engine.Resume(f.T.Context(), f.Account, idempotency.KeyID(f.Account, key))
}

// ResolveKey executes orders keys resolve.
func (f *Fixture) ResolveKey(key idempotency.Key) (idempotency.Result, error) {
	f.T.Helper()
	return f.Resolve(f.T.Context(), f.Account, idempotency.KeyID(f.Account, key), Operator)
}

// RequireMark requires that the operator has marked a row of orders or refunds.
func (f *Fixture) RequireMark(table string, id uuid.UUID) {
	f.T.Helper()
	require.Equal(f.T, 1, f.Count("SELECT count(*) FROM "+table+
		" WHERE account_id = $1 AND id = $2 AND cancel_requested_at IS NOT NULL AND cancel_requested_by = $3", f.Account, id, Operator.Actor))
}

// RunCompleter executes a pass of the completer.
func (f *Fixture) RunCompleter() idempotency.CompleterResult {
	f.T.Helper()
	c := idempotency.NewCompleter(f.Engine,
		idempotency.CompleterConfig{Grace: Grace, ActionTimeout: 23 * time.Hour, Batch: 100, Concurrency: 1})
	result, err := c.RunOnce(f.T.Context())
	require.NoError(f.T, err)
	return result
}

// AgeLastRun lets time pass since the last run of each key.
func (f *Fixture) AgeLastRun(age time.Duration) {
	f.T.Helper()
	f.Exec("UPDATE idempotency_keys SET updated_at = updated_at - $1::interval", age)
	f.Exec("UPDATE refunds SET provider_sent_at = provider_sent_at - $1::interval", age)
}

// GetOrder reads the order.
func (f *Fixture) GetOrder() orders.Order {
	f.T.Helper()
	o, err := f.Orders.Get(f.T.Context(), f.Account, OrderID(f.Account, f.Key))
	require.NoError(f.T, err)
	return o
}

// OrderID returns the id of the order of a key.
func OrderID(account uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", account, key)
}

// Outcome describes a result: its status with the codes of a failure, or the error with its
// Retry-After.
func Outcome(result idempotency.Result, err error) string {
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

// SetLease makes the key's lease this old.
func (f *Fixture) SetLease(age time.Duration) {
	f.T.Helper()
	f.Exec("UPDATE idempotency_keys SET locked_at = now() - $2::interval WHERE id = $1", idempotency.KeyID(f.Account, f.Key), age)
}

// Backdate makes the order and its key older.
func (f *Fixture) Backdate(age time.Duration) {
	f.T.Helper()
	f.Exec("UPDATE idempotency_keys SET created_at = created_at - $2::interval WHERE id = $1", idempotency.KeyID(f.Account, f.Key), age)
	f.Exec("UPDATE orders SET created_at = created_at - $2::interval WHERE id = $1", OrderID(f.Account, f.Key), age)
}

// Exec executes a statement.
func (f *Fixture) Exec(query string, arguments ...any) {
	f.T.Helper()
	_, err := f.Pool.Exec(f.T.Context(), query, arguments...)
	require.NoError(f.T, err)
}

// Count returns the number that a query returns.
func (f *Fixture) Count(query string, arguments ...any) int {
	f.T.Helper()
	var n int
	require.NoError(f.T, f.Pool.QueryRow(f.T.Context(), query, arguments...).Scan(&n))
	return n
}

// Texts returns the texts that a query returns, one in each row.
func (f *Fixture) Texts(query string, arguments ...any) []string {
	f.T.Helper()
	rows, err := f.Pool.Query(f.T.Context(), query, arguments...)
	require.NoError(f.T, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f.T, err)
	return found
}

// Snapshot returns the rows of the shop's data.
func (f *Fixture) Snapshot() []string {
	f.T.Helper()
	return f.Texts(`
SELECT k::text FROM idempotency_keys k
UNION ALL
SELECT o::text FROM orders o
UNION ALL
SELECT r::text FROM refunds r
UNION ALL
SELECT a::text FROM audit_records a
UNION ALL
SELECT j::text FROM staged_jobs j
ORDER BY 1`)
}
