package orders_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
)

func insertOrders(f *Fixture, account uuid.UUID, n int) []uuid.UUID {
	f.T.Helper()
	var ids []uuid.UUID
	for i := range n {
		id := OrderID(account, idempotency.Key(fmt.Sprintf("one-of-a-long-list-%d", i)))
		f.Exec(`
INSERT INTO orders (id, account_id, idempotency_key, email, currency, amount, items, metadata, payment_method, status, created_at)
VALUES ($1, $2, $3, 'ada@example.com', 'usd', 100, '[]', '{}', 'pm_card_visa', 'pending', now() + $4::interval)`,
			id, account, fmt.Sprint("key ", i), time.Duration(i/2)*time.Second-time.Hour)
		ids = append(ids, id)
	}
	return ids
}

func TestList_pages(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{})
	other := idempotencytest.Account(t, f.Pool)
	insertOrders(f, other, 3)
	want := insertOrders(f, f.Account, 7)
	f.Exec("UPDATE orders SET created_at = date_trunc('second', created_at)")

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
