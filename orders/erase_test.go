package orders_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
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

func TestErase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), refund("201"))
	other := f.withNewKey(t)
	other.do(create("201"))
	f.exec("UPDATE staged_jobs SET failed_at = now(), last_error = 'no such mailbox'")
	traces := []string{"ada@example.com", "Assam tea", `"b-77"`, f.clientIP.String()}
	for _, trace := range traces {
		require.NotEmpty(t, f.rowsWith(trace), trace)
	}
	before, otherBefore, refunded := f.getOrder(), other.getOrder(), f.summary()

	require.NoError(t, f.erase())
	want := before
	want.Email, want.Metadata = nil, map[string]string{}
	want.Items = []orders.Item{{SKU: "TEA-ASSAM-250", Quantity: 2, UnitAmount: 1250}, {SKU: "MUG-BLUE", Quantity: 1, UnitAmount: 1800}}
	require.Equal(t, want, f.getOrder())
	require.Equal(t, refunded, f.summary())
	require.Equal(t, []string{"order.created", "order.charge_created", "order.paid", "order.erased"}, f.history())
	require.Equal(t, otherBefore, other.getOrder(), "another order is not changed")
	require.Equal(t, 1, f.count("SELECT count(*) FROM staged_jobs"))

	// Its keys never execute again, and other requests still do.
	f.do(retry("422 key expired"))
	_, err := f.create(visa)
	require.ErrorAs(t, err, new(*idempotency.KeyExpiredError))
	result, err := f.refund(oneRefund, `{"amount":100}`)
	require.NoError(t, err)
	require.Equal(t, 201, result.Response.Status)
	require.NotEmpty(t, f.rowsWith(f.clientIP.String()))

	require.NoError(t, f.erase(), "once more, for the traces of the refund")
	require.NoError(t, other.erase())
	for _, trace := range traces {
		require.Empty(t, f.rowsWith(trace), trace)
	}
	require.Equal(t, []string{"order.created", "order.charge_created", "order.paid", "order.erased", "order.erased"}, f.history())
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

func TestErase_refused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps []step
		want  string
	}{
		"payment in progress": {[]step{stopBefore(confirm)}, "its payment is in progress"},
		"unfinished refund": {
			[]step{createPaid(visa), sendReceipts, makeUnavailable(makeRefund), refund("503 outcome unknown, 2s")},
			"one of its idempotency keys is unfinished",
		},
		"queued receipt": {[]step{createPaid(visa)}, "its receipt is queued"},
		"open dispute": {
			[]step{createPaid(visa), sendReceipts, func(f *fixture) {
				f.exec(`UPDATE orders SET disputes = '[{"id": "dp_1", "status": "won"}, {"id": "dp_2", "status": "needs_response"}]'`)
			}},
			"a dispute about it is open",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, test.steps...)
			before := f.rowsWith("")
			require.EqualError(t, f.erase(), fmt.Sprintf("erase order %s: %s", orderID(f.Account, f.key), test.want))
			require.Equal(t, before, f.rowsWith(""))
		})
	}
	f := newFixture(t, options{}, createPaid(visa), sendReceipts)
	f.exec(`UPDATE orders SET disputes = '[{"id": "dp_1", "status": "lost"}, {"id": "dp_2", "status": "warning_closed"}, {"id": "dp_3", "status": "prevented"}]'`)
	for _, account := range []uuid.UUID{uuid.New(), f.Account} {
		require.ErrorIs(t, f.Orders.Erase(t.Context(), account, orderID(f.Account, "an-unused-key"), "grace"), operations.ErrNotFound)
	}
	require.ErrorIs(t, f.Orders.Erase(t.Context(), uuid.New(), orderID(f.Account, f.key), "grace"), operations.ErrNotFound)
	require.NoError(t, f.erase())
}

// A refund at the same time is finished before the erasure, or refuses it, or begins after it.
func TestErase_races(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{connections: 4, concurrent: true}, createPaid(visa), sendReceipts)
	for i := range 20 {
		var group sync.WaitGroup
		group.Go(func() {
			if err := f.erase(); err != nil {
				require.ErrorContains(t, err, "one of its idempotency keys is unfinished")
			}
		})
		result, err := f.refund(idempotency.Key(uuid.NewString()), `{"amount":1}`)
		require.NoError(t, err)
		require.Equal(t, 201, result.Response.Status)
		group.Wait()
		require.EqualValues(t, i+1, f.getOrder().AmountRefunded)
	}
	require.NoError(t, f.erase())
	require.Empty(t, f.rowsWith("ada@example.com"))
	require.Empty(t, f.rowsWith(f.clientIP.String()))
	checkRefundInvariants(t, f)
}
