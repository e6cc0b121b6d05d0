package orders_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
)

const orderExists = "422 order-exists, and the key is unused"

func sendPurchase(f *Fixture, key idempotency.Key, paymentMethod, reference string) (idempotency.Result, error) {
	f.T.Helper()
	return f.Create(f.T.Context(), OrderRequest(f.T, f.Account, key, paymentMethod, fmt.Sprintf(`,"reference":%q`, reference)))
}

func purchase(f *Fixture, key idempotency.Key, paymentMethod, reference string) string {
	f.T.Helper()
	return Outcome(sendPurchase(f, key, paymentMethod, reference))
}

// requireOrderExists requires that another key with basket 17 is rejected with the order of a key.
func requireOrderExists(f *Fixture, other, of idempotency.Key) {
	f.T.Helper()
	_, err := sendPurchase(f, other, Visa, "basket 17")
	require.Equal(f.T, orderExists, Outcome(idempotency.Result{}, err))
	exists, _ := errors.AsType[*httpjson.Rejection](err)
	require.Equal(f.T, OrderID(f.Account, of), *exists.OrderID)
}

func TestReference(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Unchecked: true})
	const first, second, third = "the-first-key-of-a", "the-second-key-of-a", "the-third-key-of-a"

	// A failure frees the reference for the next attempt, which has a new key.
	declined, err := sendPurchase(f, first, DeclinedCard, "basket 17")
	require.Equal(t, "402 card_declined generic_decline", Outcome(declined, err))
	require.Equal(t, "201", purchase(f, second, Visa, "basket 17"))

	requireOrderExists(f, third, second)
	require.Equal(t, "201", purchase(f, third, Visa, "basket 18"), "the key is not used")
	other := idempotencytest.Account(t, f.Pool)
	_, err = f.Create(t.Context(), OrderRequest(t, other, third, Visa, `,"reference":"basket 17"`))
	require.NoError(t, err, "another account's reference")

	replayed, err := sendPurchase(f, first, DeclinedCard, "basket 17")
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
	require.Equal(t, "201", purchase(f, f.Key, Visa, "basket 17"))
	require.Equal(t, 1, idempotencytest.Reap(t, f.Pool))
	requireOrderExists(f, "the-second-key-of-b", f.Key)
	require.Equal(t, "422 key expired", purchase(f, f.Key, Visa, "basket 17"))
	require.Len(t, f.Stripe.Charges(), 1)
}

// A retry of a lost key takes its reference again. If another key has it, the retry creates
// nothing, and reconcile reports the lost charge.
func TestReference_lostRows(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Unchecked: true})
	const second = "the-second-key-of-e"
	for range 2 {
		paid, err := sendPurchase(f, f.Key, Visa, "basket 17")
		require.Equal(t, "201", Outcome(paid, err))
		require.False(t, paid.Replayed)
		require.Len(t, f.Stripe.Charges(), 1)
		requireOrderExists(f, second, f.Key)
		LoseRows(f)
	}
	require.Equal(t, "201", purchase(f, second, Visa, "basket 17"))
	requireOrderExists(f, f.Key, second)
	require.Len(t, f.Stripe.Charges(), 2)
}

func TestList_pages(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	const insert = `
INSERT INTO orders (id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method, status, created_at)
SELECT gen_random_uuid(), $1, 'key ' || i, 'ada@example.com', 'usd', 100, '[]', '{}', 'pm_card_visa', 'pending',
       date_trunc('second', now()) + i / 2 * interval '1 second' - interval '1 hour' -- two at a time in the same second
  FROM generate_series(1, $2) AS i
RETURNING id::text`
	f.Texts(insert, idempotencytest.Account(t, f.Pool), 3)
	want := f.Texts(insert, f.Account, 7)

	for _, size := range []int{1, 2, 3, 6, 7, 8} {
		var got []string
		var last orders.Order
		for len(got) < len(want) {
			page, err := f.Orders.List(t.Context(), f.Account, httpjson.Page{Limit: size, After: last.ID})
			require.NoError(t, err)
			require.Len(t, page, min(size, len(want)-len(got)))
			for _, o := range page {
				require.False(t, last.ID != uuid.Nil && o.CreatedAt.After(last.CreatedAt.Time), "newest first")
				got, last = append(got, o.ID.String()), o
			}
		}
		require.ElementsMatch(t, want, got)
	}
}
