package orders_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/receipts"
)

func (f *fixture) erase() error {
	f.t.Helper()
	return f.Orders.Erase(f.t.Context(), f.Account, orderID(f.Account, f.key), "grace")
}

// sendReceipts does what the worker does with the jobs.
func sendReceipts(f *fixture) { f.exec("DELETE FROM staged_jobs") }

// rowsWith returns the rows of all tables that contain a text, also in the bytes of a response.
func (f *fixture) rowsWith(text string) []string {
	f.t.Helper()
	query := func(sql string, arguments ...any) []string {
		rows, _ := f.Pool.Query(f.t.Context(), sql, arguments...)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(f.t, err)
		return list
	}
	var found []string
	for _, table := range query("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'") {
		found = append(found, query("SELECT '"+table+": ' || t::text FROM "+table+" AS t WHERE t::text LIKE '%' || $1 || '%' OR t::text LIKE '%' || encode($1::bytea, 'hex') || '%'", text)...)
	}
	return found
}

// traces are what an erasure removes.
func (f *fixture) traces() []string {
	return []string{"ada@example.com", "Assam tea", `"b-77"`}
}

// A receipt shows a paid order, until its address is erased.
func TestReceipt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, create("201"))
	receipt := func() (receipts.Order, error) {
		return f.Orders.Receipt(t.Context(), f.Account, orderID(f.Account, f.key))
	}
	shown, err := receipt()
	require.NoError(t, err)
	paid := f.getOrder()
	require.Equal(t, receipts.Order{
		ID: paid.ID, Email: "ada@example.com", Currency: paid.Currency, Amount: paid.Amount, PaidAt: shown.PaidAt,
		Items: []receipts.Item{
			{SKU: "TEA-ASSAM-250", Description: "Assam tea, 250 g", Quantity: 2, UnitAmount: 1250},
			{SKU: "MUG-BLUE", Description: paid.Items[1].Description, Quantity: 1, UnitAmount: 1800},
		},
	}, shown)
	require.True(t, paid.PaidAt.Equal(shown.PaidAt))

	f.exec("UPDATE orders SET email = NULL, erased_at = now()")
	_, err = receipt()
	require.ErrorIs(t, err, jobs.ErrPermanent)
	f = newFixture(t, options{}, payWith(declinedCard), create("402 card_declined generic_decline"))
	_, err = receipt()
	require.ErrorIs(t, err, jobs.ErrPermanent)
}

func TestErase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, create("201"))
	other := f.withNewKey(t)
	other.do(create("201"))
	f.do(sendReceipts)
	for _, trace := range f.traces() {
		require.NotEmpty(t, f.rowsWith(trace), trace)
	}
	before, otherBefore := f.getOrder(), other.getOrder()

	require.NoError(t, f.erase())
	want := before
	want.Email, want.Metadata = nil, map[string]string{}
	want.Items = []orders.Item{{SKU: "TEA-ASSAM-250", Quantity: 2, UnitAmount: 1250}, {SKU: "MUG-BLUE", Quantity: 1, UnitAmount: 1800}}
	require.Equal(t, want, f.getOrder())
	require.Equal(t, []string{"order.created", "order.charge_created", "order.paid", "order.erased"}, f.history())
	require.Equal(t, otherBefore, other.getOrder(), "another order is not changed")

	f.do(retry("422 key expired"))
	_, err := f.create(visa)
	require.ErrorAs(t, err, new(*idempotency.KeyExpiredError), "its key never executes again")
	require.NoError(t, other.erase())
	for _, trace := range f.traces() {
		require.Empty(t, f.rowsWith(trace), trace)
	}
	f.do(expectCharges(1))
}

func TestErase_failedOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, payWith(declinedCard), create("402 card_declined generic_decline"))
	require.NoError(t, f.erase())
	require.Empty(t, f.rowsWith("ada@example.com"))
	require.Equal(t, orders.StatusPaymentFailed, f.getOrder().Status)
	f.do(retry("422 key expired"))
}

// refusal is why an erasure is refused after these steps.
type refusal struct {
	steps []step
	want  string
}

func requireNotErased(t *testing.T, refusals map[string]refusal) {
	t.Helper()
	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, test.steps...)
			before := f.rowsWith("")
			require.EqualError(t, f.erase(), fmt.Sprintf("erase order %s: %s", orderID(f.Account, f.key), test.want))
			require.Equal(t, before, f.rowsWith(""))
		})
	}
}

func TestErase_refused(t *testing.T) {
	t.Parallel()
	requireNotErased(t, map[string]refusal{
		"payment in progress": {[]step{stopBefore(confirm)}, "its payment is in progress"},
		"queued receipt":      {[]step{create("201")}, "a receipt of it is queued, failed or not acknowledged"},
		"open dispute": {
			[]step{create("201"), sendReceipts, func(f *fixture) {
				f.exec(`UPDATE orders SET disputes = '[{"id": "dp_1", "status": "won"}, {"id": "dp_2", "status": "needs_response"}]'`)
			}},
			"a dispute about it is open",
		},
	})
	f := newFixture(t, options{}, create("201"), sendReceipts)
	f.exec(`UPDATE orders SET disputes = '[{"id": "dp_1", "status": "lost"}, {"id": "dp_2", "status": "warning_closed"}, {"id": "dp_3", "status": "prevented"}]'`)
	for _, account := range []uuid.UUID{uuid.New(), f.Account} {
		require.ErrorIs(t, f.Orders.Erase(t.Context(), account, orderID(f.Account, "an-unused-key"), "grace"), httpjson.ErrNotFound)
	}
	require.ErrorIs(t, f.Orders.Erase(t.Context(), uuid.New(), orderID(f.Account, f.key), "grace"), httpjson.ErrNotFound)
	require.NoError(t, f.erase())
}
