// Package orderstest wires a service for tests: a database of its own, the engine, the fake
// Stripe, package orders and the API. A [Fixture] tells scenarios of one order, for the tests of
// orders and of its subpackages.
package orderstest

import (
	"cmp"
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/orders/refunds"
	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// WebhookSecret signs events.
const WebhookSecret = "whsec_of_these_tests"

// Options change a [Shop].
type Options struct {
	Pool         *pgxpool.Pool      // a new database
	Account      uuid.UUID          // a new account
	Logger       *slog.Logger       // discards the log
	StepTimeout  time.Duration      // 20 seconds
	ChargeWindow time.Duration      // 23 hours
	NoWebhook    bool               // otherwise WebhookSecret signs events
	Stripe       stripetest.Options // of the fake
	Fake         *stripetest.Server // of another Shop; a new one
	Payments     payments.Config    // of its client; with a BaseURL, there is no fake
	Engine       idempotency.Config // with leases of a minute
}

// Shop is a service with an account.
type Shop struct {
	Pool     *pgxpool.Pool
	Account  uuid.UUID
	Logger   *slog.Logger
	Stripe   *stripetest.Server // the fake, which ends with the test
	Payments *payments.Client
	Engine   *idempotency.Engine
	Orders   *orders.Service
	Refunds  *refunds.Service
	Changes  *reconcile.Service
}

// New returns a Shop.
func New(tb testing.TB, o Options) *Shop {
	tb.Helper()
	s := &Shop{Pool: o.Pool, Account: o.Account, Logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), Stripe: o.Fake}
	if s.Pool == nil {
		s.Pool = idempotencytest.NewPool(tb)
	}
	if s.Account == uuid.Nil {
		s.Account = idempotencytest.Account(tb, s.Pool)
	}
	if o.Payments.BaseURL == "" {
		if s.Stripe == nil {
			s.Stripe = stripetest.New(o.Stripe)
			tb.Cleanup(s.Stripe.Close)
		}
		server := httptest.NewServer(s.Stripe)
		tb.Cleanup(server.Close)
		o.Payments.BaseURL = server.URL
	}

	stepTimeout := cmp.Or(o.StepTimeout, 20*time.Second)
	o.Payments.SecretKey = cmp.Or(o.Payments.SecretKey, "sk_test_orders")
	if !o.NoWebhook {
		o.Payments.WebhookSecret = WebhookSecret
	}
	o.Payments.Timeout = stepTimeout
	o.Payments.Backoff = cmp.Or(o.Payments.Backoff, time.Millisecond)
	o.Payments.Logger = cmp.Or(o.Payments.Logger, s.Logger)
	s.Payments = payments.New(o.Payments)
	tb.Cleanup(s.Payments.Close)

	o.Engine.LeaseDuration = cmp.Or(o.Engine.LeaseDuration, time.Minute)
	if o.Engine.Clock == nil {
		o.Engine.Clock = time.Now
	}
	o.Engine.Logger = s.Logger
	var err error
	s.Engine, err = idempotency.New(s.Pool, o.Engine)
	require.NoError(tb, err)
	s.Orders = &orders.Service{Payments: s.Payments, Logger: s.Logger, Pool: s.Pool, Engine: s.Engine, ChargeWindow: cmp.Or(o.ChargeWindow, 23*time.Hour)}
	s.Refunds = &refunds.Service{Orders: s.Orders}
	s.Engine.Register(s.Orders.Operations()...)
	s.Engine.Register(s.Refunds.Operation())
	s.Changes = &reconcile.Service{Orders: s.Orders, Timeout: time.Minute}
	return s
}

// Create executes POST /v1/orders without HTTP.
func (s *Shop) Create(ctx context.Context, req idempotency.Request) (idempotency.Result, error) {
	return s.Engine.Do(ctx, req, s.Engine.Operation(orders.CreateOperation))
}

// Cancel executes POST /v1/orders/{id}/cancel without HTTP.
func (s *Shop) Cancel(ctx context.Context, req idempotency.Request) (idempotency.Result, error) {
	return s.Engine.Do(ctx, req, s.Engine.Operation(orders.CancelOperation))
}

// Retry executes orders keys retry.
func (s *Shop) Retry(ctx context.Context, accountID, keyID uuid.UUID, by audit.Operator) (idempotency.Result, error) {
	return s.Engine.Retry(ctx, accountID, keyID, func(batch *pgx.Batch) { audit.WriteKeyTx(batch, accountID, keyID, "key.retry", by) })
}

// Resolve executes orders keys resolve.
func (s *Shop) Resolve(ctx context.Context, accountID, keyID uuid.UUID, by audit.Operator) (idempotency.Result, error) {
	return s.Engine.Resolve(ctx, accountID, keyID, by.Actor, func(batch *pgx.Batch) { audit.WriteKeyTx(batch, accountID, keyID, "key.resolve", by) })
}

// API returns the API and a key of the account, by default with generous limits.
func (s *Shop) API(tb testing.TB, config api.Config) (router chi.Router, apiKey string) {
	tb.Helper()
	_, apiKey, err := accounts.CreateKey(tb.Context(), s.Pool, s.Account)
	require.NoError(tb, err)
	config.Engine, config.Orders, config.Changes = s.Engine, s.Orders, s.Changes
	config.Logger = s.Logger
	config.Retention = 72 * time.Hour
	if config.Authenticator == nil {
		config.Authenticator = accounts.NewAuthenticator(s.Pool, time.Now)
	}
	if config.Limiter == nil {
		config.Limiter = admission.New(admission.Config{Permits: 1000, Backlog: 1000, Wait: time.Minute})
	}
	if config.Background == nil {
		config.Background = make(api.Background, 100)
	}
	if config.Ready == nil {
		config.Ready = api.NewReadiness(func() error { return nil })
	}
	if config.Spec == nil {
		config.Spec = []byte("openapi: 3.1.0") // each router encodes it
	}
	return api.NewRouter(config), apiKey
}
