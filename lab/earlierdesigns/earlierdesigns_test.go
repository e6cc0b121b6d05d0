// Package earlierdesigns_test runs the designs of cmd/playground/earlierdesigns and the published one,
// and this project's service with the same faults. spec/earlier-designs.md explains them.
package earlierdesigns_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/cmd/playground/earlierdesigns"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

const (
	key = "the-key-of-this-purchase"

	create  = "POST /v1/payment_intents"
	confirm = "POST /v1/payment_intents/{id}/confirm"
	read    = "GET /v1/payment_intents/{id}"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// The process is killed after the charge, before it stores anything.
func TestKilledAfterCharge(t *testing.T) {
	t.Parallel()
	t.Run("lock", func(t *testing.T) {
		t.Parallel()
		shop, provider := newLockedShop(t)
		held := provider.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: create})
		ctx, kill := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- shop.Order(ctx, key) }()
		<-held.Reached()
		kill()
		require.Error(t, <-first)

		require.ErrorIs(t, shop.Order(t.Context(), key), earlierdesigns.ErrInProgress)
		shop.Redis.Advance(earlierdesigns.LockTTL)
		require.NoError(t, shop.Order(t.Context(), key))
		requireCharges(t, provider, 2)
		requireOrders(t, 1, shop, "the first charge has no order")
	})
	t.Run("this project", func(t *testing.T) {
		t.Parallel()
		f := labtest.NewFixture(t)
		api := f.Serve(f.Environ)
		held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirm})
		first := orderAsync(t, api)
		<-held.Reached()
		api.Signal(syscall.SIGKILL)
		api.Wait()
		<-first

		endLease(f)
		requirePaid(t, f.Serve(f.Environ))
		requireCharges(t, f.Stripe, 1)
	})
}

// The provider is slower than the lock, and the client sends the request again.
func TestProviderSlowerThanLock(t *testing.T) {
	t.Parallel()
	t.Run("lock", func(t *testing.T) {
		t.Parallel()
		shop, provider := newLockedShop(t)
		held := provider.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: create})
		first := make(chan error, 1)
		go func() { first <- shop.Order(t.Context(), key) }()
		<-held.Reached()
		shop.Redis.Advance(earlierdesigns.LockTTL)
		require.NoError(t, shop.Order(t.Context(), key))
		held.Release()
		require.NoError(t, <-first)
		requireCharges(t, provider, 2)
	})
	t.Run("this project", func(t *testing.T) {
		t.Parallel()
		f := labtest.NewFixture(t)
		api := f.Serve(f.Environ)
		held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirm})
		first := orderAsync(t, api)
		<-held.Reached()
		endLease(f)
		sent := len(f.Stripe.Requests())
		second := orderAsync(t, api)
		programtest.Eventually(t, func() bool { return len(f.Stripe.Requests()) > sent })
		held.Release()
		<-first
		<-second
		requirePaid(t, api)
		requireCharges(t, f.Stripe, 1)
	})
}

// The store of the keys fails over to a replica without the last writes.
func TestKeysLostInFailover(t *testing.T) {
	t.Parallel()
	t.Run("lock", func(t *testing.T) {
		t.Parallel()
		shop, provider := newLockedShop(t)
		require.NoError(t, shop.Order(t.Context(), key))
		require.NoError(t, shop.Order(t.Context(), key))
		requireCharges(t, provider, 1)
		shop.Redis.FailOver()
		require.NoError(t, shop.Order(t.Context(), key))
		requireCharges(t, provider, 2)
	})
	t.Run("this project", func(t *testing.T) {
		t.Parallel()
		f := labtest.NewFixture(t)
		api := f.Serve(f.Environ)
		requirePaid(t, api)
		for _, table := range []string{"orders", "idempotency_keys", "staged_jobs", "audit_records"} {
			f.Exec("DELETE FROM " + table)
		}
		requirePaid(t, api)
		requireCharges(t, f.Stripe, 1)
	})
}

// The provider charges the card and stores a 500 under its key.
func TestStored500AfterCharge(t *testing.T) {
	t.Parallel()
	t.Run("one call, the same provider key", func(t *testing.T) {
		t.Parallel()
		shop, provider := newOneCallShop(t)
		provider.Inject(stripetest.Rule{Fault: stripetest.ErrorAfter, Endpoint: create})
		for range 5 {
			require.Error(t, shop.Order(t.Context(), key))
		}
		requireCharges(t, provider, 1)
		requireOrders(t, 0, shop, "the customer paid, and no retry finds out")
	})
	t.Run("one call, another provider key", func(t *testing.T) {
		t.Parallel()
		shop, provider := newOneCallShop(t)
		shop.NewKeyAfter500 = true
		provider.Inject(stripetest.Rule{Fault: stripetest.ErrorAfter, Endpoint: create})
		require.Error(t, shop.Order(t.Context(), key))
		require.NoError(t, shop.Order(t.Context(), key))
		requireCharges(t, provider, 2)
		requireOrders(t, 1, shop, "the first charge has no order")
	})
	t.Run("this project", func(t *testing.T) {
		t.Parallel()
		f := labtest.NewFixture(t)
		api := f.Serve(f.Environ)
		f.Stripe.Inject(stripetest.Rule{Fault: stripetest.ErrorAfter, Endpoint: confirm})
		requirePaid(t, api)
		requireCharges(t, f.Stripe, 1)
	})
}

// The response of the charge is lost, and the client retries after the provider has
// deleted its key.
func TestRetryAfterProviderKeyExpired(t *testing.T) {
	t.Parallel()
	const later = 25 * time.Hour
	t.Run("one call", func(t *testing.T) {
		t.Parallel()
		shop, provider := newOneCallShop(t)
		provider.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: create})
		require.Error(t, shop.Order(t.Context(), key))
		provider.Advance(later)
		require.NoError(t, shop.Order(t.Context(), key))
		requireCharges(t, provider, 2)
		requireOrders(t, 1, shop, "the first charge has no order")
	})
	t.Run("this project", func(t *testing.T) {
		t.Parallel()
		f := labtest.NewFixture(t)
		api := f.Serve(f.Environ)
		lost := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: confirm, Times: stripetest.Always})
		unread := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Endpoint: read, Times: stripetest.Always})
		response := <-orderAsync(t, api)
		require.Equal(t, http.StatusServiceUnavailable, response.Status, "%s", response.Body)
		lost.Release()
		unread.Release()
		pass(f, later)
		requirePaid(t, api)
		requireCharges(t, f.Stripe, 1)
	})
}

func newLockedShop(t *testing.T) (earlierdesigns.LockedShop, *stripetest.Server) {
	t.Helper()
	db, provider, url := newServices(t)
	return earlierdesigns.LockedShop{Redis: &earlierdesigns.Redis{}, DB: db, Stripe: earlierdesigns.Stripe(url)}, provider
}

func newOneCallShop(t *testing.T) (earlierdesigns.OneCallShop, *stripetest.Server) {
	t.Helper()
	db, provider, url := newServices(t)
	return earlierdesigns.OneCallShop{DB: db, Stripe: earlierdesigns.Stripe(url)}, provider
}

func newServices(t *testing.T) (db *pgxpool.Pool, provider *stripetest.Server, url string) {
	t.Helper()
	db = dbtest.Empty(t)
	require.NoError(t, earlierdesigns.CreateTables(t.Context(), db))
	provider = stripetest.New(stripetest.Options{})
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	t.Cleanup(provider.Close) // before server.Close, which waits for held requests
	return db, provider, server.URL
}

func orderAsync(t *testing.T, api *programtest.API) <-chan programtest.Response {
	t.Helper()
	done := make(chan programtest.Response, 1)
	go func() {
		response, _ := api.Order(t.Context(), key) // it may be lost
		done <- response
	}()
	return done
}

func requirePaid(t *testing.T, api *programtest.API) {
	t.Helper()
	response, err := api.Order(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, response.Status, "%s", response.Body)
}

// pass lets time pass, for the provider and in the rows.
func pass(f *labtest.Fixture, d time.Duration) {
	f.T.Helper()
	f.Stripe.Advance(d)
	f.Exec("UPDATE idempotency_keys SET created_at = created_at - $1::interval, updated_at = updated_at - $1::interval", d)
	f.Exec("UPDATE orders SET created_at = created_at - $1::interval", d)
}

// endLease ends the leases of all runs, as time does.
func endLease(f *labtest.Fixture) {
	f.Exec("UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour'")
}

func requireCharges(t *testing.T, provider *stripetest.Server, n int) {
	t.Helper()
	charges := provider.Charges()
	for _, c := range charges {
		t.Logf("charged %d.%02d %s: %s", c.Amount/100, c.Amount%100, c.Currency, c.ID)
	}
	require.Len(t, charges, n)
}

func requireOrders(t *testing.T, n int, shop interface {
	PaidOrders(ctx context.Context) (int, error)
}, why string,
) {
	t.Helper()
	paid, err := shop.PaidOrders(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, paid, why)
}
