package orders_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	. "example.com/orders-api/orders/orderstest"
)

// An order can be refunded after its erasure, and erased again for the traces of the refund.
func TestErase_refund(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, CreatePaid(Visa), sendReceipts, Refund("201"))
	before := f.Summary()
	require.NoError(t, erase(f))
	require.Equal(t, before, f.Summary())

	result, err := f.RefundOrder(OneRefund, `{"amount":100}`)
	require.NoError(t, err)
	require.Equal(t, 201, result.Response.Status)
	require.NoError(t, erase(f))
	for _, trace := range traces {
		require.Empty(t, rowsWith(f, trace), trace)
	}
	require.Equal(t, []string{"order.created", "order.charge_created", "order.paid", "order.erased", "order.erased"}, history(f))
}

func TestErase_unfinishedRefund(t *testing.T) {
	t.Parallel()
	requireNotErased(t, map[string]refusal{"unfinished refund": {
		[]Step{CreatePaid(Visa), sendReceipts, MakeUnavailable(MakeRefund), Refund("503 outcome unknown, 2s")},
		"one of its idempotency keys is unfinished",
	}})
}

// A refund at the same time is finished before the erasure, or refuses it, or begins after it.
func TestErase_races(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{Connections: 4, Concurrent: true}, CreatePaid(Visa), sendReceipts)
	for i := range 20 {
		var group sync.WaitGroup
		group.Go(func() {
			if err := erase(f); err != nil {
				require.ErrorContains(t, err, "one of its idempotency keys is unfinished")
			}
		})
		result, err := f.RefundOrder(idempotency.Key(uuid.NewString()), `{"amount":1}`)
		require.NoError(t, err)
		require.Equal(t, 201, result.Response.Status)
		group.Wait()
		require.EqualValues(t, i+1, f.GetOrder().AmountRefunded)
	}
	require.NoError(t, erase(f))
	require.Empty(t, rowsWith(f, "ada@example.com"))
	CheckRefundInvariants(t, f)
}

func TestEvents_stagedRefunds(t *testing.T) {
	t.Parallel()
	requireStaged(t, map[string]staging{
		"refunded":       {[]Step{Create("201"), Refund("201"), Retry("201")}, []string{"order.paid", "receipt", "refund.created"}},
		"refund refused": {[]Step{Create("201"), RefundAtProvider(), Refund("422 charge_already_refunded")}, []string{"order.paid", "receipt", "refund.updated"}},
	})
}

// Rows that a failover loses are staged again under the same id, so the shop that has the event already
// ignores it.
func TestEvents_lostRows(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, SetEndpoint, Create("201"), Refund("201"))
	ids := func() []string {
		return f.Texts("SELECT id || ' ' || args FROM staged_jobs WHERE kind = 'event' ORDER BY id")
	}
	before := ids()
	require.Len(t, before, 2)
	LoseRefunds(f)
	LoseRows(f)
	require.Empty(t, ids())
	f.Do(Create("201"), Refund("201"))
	require.Equal(t, before, ids())
}
