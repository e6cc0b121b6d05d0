package orders_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/receipts"
)

func erase(f *Fixture) error {
	f.T.Helper()
	return f.Orders.Erase(f.T.Context(), f.Account, OrderID(f.Account, f.Key), "grace")
}

// sendReceipts does what the worker does with the jobs.
func sendReceipts(f *Fixture) { f.Exec("DELETE FROM staged_jobs") }

// rowsWith returns the rows of all tables that contain a text, also in the bytes of a response.
func rowsWith(f *Fixture, text string) []string {
	f.T.Helper()
	var found []string
	for _, table := range f.Texts("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'") {
		found = append(found, f.Texts("SELECT '"+table+": ' || t::text FROM "+table+" AS t WHERE t::text LIKE '%' || $1 || '%' OR t::text LIKE '%' || encode($1::bytea, 'hex') || '%'", text)...)
	}
	return found
}

// traces are what an erasure removes.
var traces = []string{"ada@example.com", "Assam tea", `"b-77"`}

// A receipt shows a paid order, until its address is erased.
func TestReceipt(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, Create("201"))
	receipt := func() (receipts.Order, error) {
		return f.Orders.Receipt(t.Context(), f.Account, OrderID(f.Account, f.Key))
	}
	shown, err := receipt()
	require.NoError(t, err)
	paid := f.GetOrder()
	require.Equal(t, receipts.Order{
		ID: paid.ID, Email: "ada@example.com", Currency: paid.Currency, Amount: paid.Amount, PaidAt: shown.PaidAt,
		Items: []receipts.Item{
			{SKU: "TEA-ASSAM-250", Description: "Assam tea, 250 g", Quantity: 2, UnitAmount: 1250},
			{SKU: "MUG-BLUE", Description: paid.Items[1].Description, Quantity: 1, UnitAmount: 1800},
		},
	}, shown)
	require.True(t, paid.PaidAt.Equal(shown.PaidAt))

	f.Exec("UPDATE orders SET email = NULL, erased_at = now()")
	_, err = receipt()
	require.ErrorIs(t, err, jobs.ErrPermanent)
	f = NewFixture(t, Setup{}, PayWith(DeclinedCard), Create("402 card_declined generic_decline"))
	_, err = receipt()
	require.ErrorIs(t, err, jobs.ErrPermanent)
}

func TestErase(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, Create("201"))
	other := f.WithNewKey(t)
	other.Do(PayWith(DeclinedCard), Create("402 card_declined generic_decline"))
	f.Do(sendReceipts)
	for _, trace := range traces {
		require.NotEmpty(t, rowsWith(f, trace), trace)
	}
	before, otherBefore := f.GetOrder(), other.GetOrder()

	require.NoError(t, erase(f))
	want := before
	want.Email, want.Metadata = nil, map[string]string{}
	want.Items = []orders.Item{{SKU: "TEA-ASSAM-250", Quantity: 2, UnitAmount: 1250}, {SKU: "MUG-BLUE", Quantity: 1, UnitAmount: 1800}}
	require.Equal(t, want, f.GetOrder())
	require.Equal(t, []string{"order.created", "order.charge_created", "order.paid", "order.erased"}, history(f))
	require.Equal(t, otherBefore, other.GetOrder(), "another order is not changed")

	f.Do(Retry("422 key expired"))
	_, err := f.CreateOrder(Visa)
	require.ErrorAs(t, err, new(*idempotency.KeyExpiredError), "its key never executes again")
	require.NoError(t, erase(other), "a failed order")
	require.Equal(t, orders.StatusPaymentFailed, other.GetOrder().Status)
	other.Do(Retry("422 key expired"))
	for _, trace := range traces {
		require.Empty(t, rowsWith(f, trace), trace)
	}
	f.Do(ExpectCharges(1))
}

// refusal is why an erasure is refused after these steps.
type refusal struct {
	steps []Step
	want  string
}

func requireNotErased(t *testing.T, refusals map[string]refusal) {
	t.Helper()
	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{}, test.steps...)
			before := rowsWith(f, "")
			require.EqualError(t, erase(f), fmt.Sprintf("erase order %s: %s", OrderID(f.Account, f.Key), test.want))
			require.Equal(t, before, rowsWith(f, ""))
		})
	}
}

func TestErase_refused(t *testing.T) {
	t.Parallel()
	requireNotErased(t, map[string]refusal{
		"payment in progress": {[]Step{StopBefore(Confirm)}, "its payment is in progress"},
		"queued receipt":      {[]Step{Create("201")}, "a receipt of it is queued, failed or not acknowledged"},
		"open dispute": {
			[]Step{Create("201"), sendReceipts, func(f *Fixture) {
				f.Exec(`UPDATE orders SET disputes = '[{"id": "dp_1", "status": "won"}, {"id": "dp_2", "status": "needs_response"}]'`)
			}},
			"a dispute about it is open",
		},
	})
	f := NewFixture(t, Setup{}, Create("201"), sendReceipts)
	f.Exec(`UPDATE orders SET disputes = '[{"id": "dp_1", "status": "lost"}, {"id": "dp_2", "status": "warning_closed"}, {"id": "dp_3", "status": "prevented"}]'`)
	for _, account := range []uuid.UUID{uuid.New(), f.Account} {
		require.ErrorIs(t, f.Orders.Erase(t.Context(), account, OrderID(f.Account, "an-unused-key"), "grace"), httpjson.ErrNotFound)
	}
	require.ErrorIs(t, f.Orders.Erase(t.Context(), uuid.New(), OrderID(f.Account, f.Key), "grace"), httpjson.ErrNotFound)
	require.NoError(t, erase(f))
}

// keptColumns are the columns without personal data, of each table with rows of an order. A shop needs them as the
// records of a payment, or to reject a key that was used.
var keptColumns = map[string]string{
	"audit_records": "account_id id action resource_type resource_id data created_at",
	"idempotency_keys": "account_id id operation request_path recovery_point lease_token locked_at runs " +
		"updated_at action_required_at created_at finished_at expired_at lost",
	"orders": "account_id id idempotency_key reference currency amount amount_refunded payment_method off_session status payment_intent_id " +
		"create_key_number confirm_key_number created_at paid_at failure_code decline_code cancel_requested_at cancel_requested_by " +
		"erased_at disputes provider_read_at",
	"provider_events": "id type object_id intent_id received_at",
	"refunds": "account_id id order_id idempotency_key amount currency reason status provider_refund_id failure_reason provider_key_number " +
		"provider_sent_at provider_failed_at created_at source cancel_requested_at cancel_requested_by",
	"staged_jobs": "account_id id kind args run_at attempt last_error failed_at acknowledged_at created_at", // args are ids, and addresses are removed from errors
}

// erasedColumns are the others, with the condition that holds for each row of the order after an erasure.
var erasedColumns = map[string]string{
	"idempotency_keys.idempotency_key":  "idempotency_key IS NULL",
	"idempotency_keys.last_error":       "last_error IS NULL",
	"idempotency_keys.fingerprint":      "fingerprint IS NULL",
	"idempotency_keys.request_method":   "request_method IS NULL",
	"idempotency_keys.request_params":   "request_params IS NULL",
	"idempotency_keys.response_body":    "response_body IS NULL",
	"idempotency_keys.response_code":    "response_code IS NULL",
	"idempotency_keys.response_headers": "response_headers IS NULL",
	"orders.email":                      "email IS NULL",
	"orders.items":                      "NOT jsonb_path_exists(items, '$[*].description')",
	"orders.metadata":                   "metadata::text = '{}'",
}

// A new column fails this test until it is among those that an erasure keeps or removes.
func TestErase_everyColumn(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, Create("201"), sendReceipts)
	classified := map[string]bool{}
	for table, columns := range keptColumns {
		for column := range strings.FieldsSeq(columns) {
			classified[table+"."+column] = true
		}
	}
	for column := range erasedColumns {
		require.NotContains(t, classified, column, "both kept and erased")
		classified[column] = true
	}
	rows, _ := f.Pool.Query(t.Context(), `
SELECT table_name || '.' || column_name
  FROM information_schema.columns
 WHERE table_schema = current_schema()
   AND table_name = ANY($1)`, slices.Collect(maps.Keys(keptColumns)))
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, column := range columns {
		require.True(t, classified[column], "%s is neither kept nor erased: if it can hold personal data, Erase must remove it", column)
		delete(classified, column)
	}
	require.Empty(t, classified, "these columns do not exist")

	remaining := func(column string) int {
		table, _, _ := strings.Cut(column, ".")
		return f.Count(fmt.Sprintf("SELECT count(*) FROM %s WHERE NOT (%s)", table, erasedColumns[column]))
	}
	f.Exec("UPDATE idempotency_keys SET last_error = 'no response'")
	for column := range erasedColumns {
		require.NotZero(t, remaining(column), "the order has no %s that could be erased", column)
	}
	require.NoError(t, erase(f))
	for column := range erasedColumns {
		require.Zero(t, remaining(column), column)
	}
}
