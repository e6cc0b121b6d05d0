package orders_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/httpjson"
	. "example.com/orders-api/orders/orderstest"
)

func purchase(f *Fixture, key idempotency.Key, paymentMethod, reference string) (idempotency.Result, error) {
	f.T.Helper()
	return f.Create(f.T.Context(), OrderRequest(f.T, f.Account, key, paymentMethod, fmt.Sprintf(`,"reference":%q`, reference)))
}

func requireOrderExists(t *testing.T, err error, id uuid.UUID) {
	t.Helper()
	exists, ok := errors.AsType[*httpjson.Rejection](err)
	require.True(t, ok && exists.Slug == "order-exists", "%v", err)
	require.Equal(t, id, *exists.OrderID)
}

func TestReference(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Unchecked: true})
	const first, second, third = "the-first-key-of-a", "the-second-key-of-a", "the-third-key-of-a"

	declined, err := purchase(f, first, DeclinedCard, "basket 17")
	require.NoError(t, err)
	require.Equal(t, 402, declined.Response.Status)

	// A failure frees the reference for the next attempt, which has a new key.
	paid, err := purchase(f, second, Visa, "basket 17")
	require.NoError(t, err)
	require.Equal(t, 201, paid.Response.Status)

	_, err = purchase(f, third, Visa, "basket 17")
	requireOrderExists(t, err, OrderID(f.Account, second))
	_, err = purchase(f, third, Visa, "basket 18") // the key is not used
	require.NoError(t, err)
	other := idempotencytest.Account(t, f.Pool)
	_, err = f.Create(t.Context(), OrderRequest(t, other, third, Visa, `,"reference":"basket 17"`))
	require.NoError(t, err, "another account's reference")

	replayed, err := purchase(f, first, DeclinedCard, "basket 17")
	require.NoError(t, err)
	require.True(t, replayed.Replayed)
	require.Equal(t, declined.Response, replayed.Response)

	all, err := f.Orders.List(t.Context(), f.Account,
		httpjson.Page{Limit: 10, Filters: map[string]string{"reference": "basket 17"}})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, OrderID(f.Account, second), all[0].ID)
	require.Equal(t, "basket 17", *all[1].Reference)
	require.Len(t, f.Stripe.Charges(), 3)
}

// The order outlives its key, so a reaped key does not free the reference, and an expired key
// is rejected as expired (R2).
func TestReference_reapedKey(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Unchecked: true})
	_, err := purchase(f, "the-first-key-of-b", Visa, "basket 17")
	require.NoError(t, err)
	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	_, err = purchase(f, "the-second-key-of-b", Visa, "basket 17")
	requireOrderExists(t, err, OrderID(f.Account, "the-first-key-of-b"))
	_, err = purchase(f, "the-first-key-of-b", Visa, "basket 17")
	require.Equal(t, "422 key expired", Outcome(idempotency.Result{}, err))
	require.Len(t, f.Stripe.Charges(), 1)
}

func TestReference_race(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Connections: 4, Concurrent: true, Unchecked: true})
	var created, rejected int
	var counting sync.Mutex
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			_, err := purchase(f, idempotency.Key(fmt.Sprintf("a-key-of-the-race-%d", n)), Visa, "basket 17")
			_, exists := errors.AsType[*httpjson.Rejection](err)
			counting.Lock()
			defer counting.Unlock()
			switch {
			case err == nil:
				created++
			case exists:
				rejected++
			default:
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, created)
	require.Equal(t, 11, rejected)
	list, err := f.Orders.List(t.Context(), f.Account, httpjson.Page{Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Len(t, f.Stripe.Charges(), 1)
}

// A retry of a lost key takes its reference again. If another key has it, the retry creates
// nothing, and reconcile reports the lost charge.
func TestReference_lostRows(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Unchecked: true})
	const second = "the-second-key-of-e"
	for range 2 {
		paid, err := purchase(f, f.Key, Visa, "basket 17")
		require.NoError(t, err)
		require.Equal(t, 201, paid.Response.Status)
		require.False(t, paid.Replayed)
		require.Len(t, f.Stripe.Charges(), 1)
		_, err = purchase(f, second, Visa, "basket 17")
		requireOrderExists(t, err, OrderID(f.Account, f.Key))
		LoseRows(f)
	}
	_, err := purchase(f, second, Visa, "basket 17")
	require.NoError(t, err)
	_, err = purchase(f, f.Key, Visa, "basket 17")
	requireOrderExists(t, err, OrderID(f.Account, second))
	require.Len(t, f.Stripe.Charges(), 2)
}
