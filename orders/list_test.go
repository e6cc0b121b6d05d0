package orders_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
)

// insertOrders inserts n orders, of which two at a time were created in the same second.
func insertOrders(f *Fixture, account uuid.UUID, n int) (ids []uuid.UUID) {
	f.T.Helper()
	for _, id := range f.Texts(`
INSERT INTO orders (id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method, status, created_at)
SELECT gen_random_uuid(), $1, 'key ' || i, 'ada@example.com', 'usd', 100, '[]', '{}', 'pm_card_visa', 'pending',
       date_trunc('second', now()) + i / 2 * interval '1 second' - interval '1 hour'
  FROM generate_series(1, $2) AS i
RETURNING id::text`, account, n) {
		ids = append(ids, uuid.MustParse(id))
	}
	return ids
}

func TestList_pages(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	other := idempotencytest.Account(t, f.Pool)
	insertOrders(f, other, 3)
	want := insertOrders(f, f.Account, 7)

	for _, size := range []int{1, 2, 3, 6, 7, 8} {
		var got []uuid.UUID
		var last orders.Order
		for len(got) < len(want) {
			page, err := f.Orders.List(t.Context(), f.Account, httpjson.Page{Limit: size, After: last.ID})
			require.NoError(t, err)
			require.Len(t, page, min(size, len(want)-len(got)))
			for _, o := range page {
				require.False(t, last.ID != uuid.Nil && o.CreatedAt.After(last.CreatedAt.Time), "newest first")
				got, last = append(got, o.ID), o
			}
		}
		require.ElementsMatch(t, want, got)
	}
}
