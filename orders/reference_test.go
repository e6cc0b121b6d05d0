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
)

func (f *fixture) purchase(key idempotency.Key, paymentMethod, reference string) (idempotency.Result, error) {
	f.t.Helper()
	return f.Create(f.t.Context(), request(f.t, f.Account, key, paymentMethod, fmt.Sprintf(`,"reference":%q`, reference)))
}

func requireOrderExists(t *testing.T, err error, id uuid.UUID) {
	t.Helper()
	exists, ok := errors.AsType[*httpjson.Rejection](err)
	require.True(t, ok && exists.Slug == "order-exists", "%v", err)
	require.Equal(t, id, *exists.OrderID)
}

func TestReference(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{unchecked: true})
	const first, second, third = "the-first-key-of-a", "the-second-key-of-a", "the-third-key-of-a"

	declined, err := f.purchase(first, declinedCard, "basket 17")
	require.NoError(t, err)
	require.Equal(t, 402, declined.Response.Status)

	// A failure frees the reference for the next attempt, which has a new key.
	paid, err := f.purchase(second, visa, "basket 17")
	require.NoError(t, err)
	require.Equal(t, 201, paid.Response.Status)

	_, err = f.purchase(third, visa, "basket 17")
	requireOrderExists(t, err, orderID(f.Account, second))
	_, err = f.purchase(third, visa, "basket 18") // the key is not used
	require.NoError(t, err)
	other := idempotencytest.Account(t, f.Pool)
	_, err = f.Create(t.Context(), request(t, other, third, visa, `,"reference":"basket 17"`))
	require.NoError(t, err, "another account's reference")

	replayed, err := f.purchase(first, declinedCard, "basket 17")
	require.NoError(t, err)
	require.True(t, replayed.Replayed)
	require.Equal(t, declined.Response, replayed.Response)

	all, err := f.Orders.List(t.Context(), f.Account,
		httpjson.Page{Limit: 10, Filters: map[string]string{"reference": "basket 17"}})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, orderID(f.Account, second), all[0].ID)
	require.Equal(t, "basket 17", *all[1].Reference)
	require.Len(t, f.Stripe.Charges(), 3)
}

// The order outlives its key, so a reaped key does not free the reference, and an expired key
// is rejected as expired (R2).
func TestReference_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{unchecked: true})
	_, err := f.purchase("the-first-key-of-b", visa, "basket 17")
	require.NoError(t, err)
	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	_, err = f.purchase("the-second-key-of-b", visa, "basket 17")
	requireOrderExists(t, err, orderID(f.Account, "the-first-key-of-b"))
	_, err = f.purchase("the-first-key-of-b", visa, "basket 17")
	require.Equal(t, "422 key expired", outcomeOf(idempotency.Result{}, err))
	require.Len(t, f.Stripe.Charges(), 1)
}

func TestReference_race(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{connections: 4, concurrent: true, unchecked: true})
	var created, rejected int
	var counting sync.Mutex
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			_, err := f.purchase(idempotency.Key(fmt.Sprintf("a-key-of-the-race-%d", n)), visa, "basket 17")
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
	f := newFixture(t, options{unchecked: true})
	const second = "the-second-key-of-e"
	for range 2 {
		paid, err := f.purchase(f.key, visa, "basket 17")
		require.NoError(t, err)
		require.Equal(t, 201, paid.Response.Status)
		require.False(t, paid.Replayed)
		require.Len(t, f.Stripe.Charges(), 1)
		_, err = f.purchase(second, visa, "basket 17")
		requireOrderExists(t, err, orderID(f.Account, f.key))
		loseRows(f)
	}
	_, err := f.purchase(second, visa, "basket 17")
	require.NoError(t, err)
	_, err = f.purchase(f.key, visa, "basket 17")
	requireOrderExists(t, err, orderID(f.Account, second))
	require.Len(t, f.Stripe.Charges(), 2)
}
