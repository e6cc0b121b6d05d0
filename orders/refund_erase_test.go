package orders_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

// An order can be refunded after its erasure, and erased again for the traces of the refund.
func TestErase_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa), sendReceipts, refund("201"))
	before := f.summary()
	require.NoError(t, f.erase())
	require.Equal(t, before, f.summary())

	result, err := f.refund(oneRefund, `{"amount":100}`)
	require.NoError(t, err)
	require.Equal(t, 201, result.Response.Status)
	require.NoError(t, f.erase())
	for _, trace := range f.traces() {
		require.Empty(t, f.rowsWith(trace), trace)
	}
	require.Equal(t, []string{"order.created", "order.charge_created", "order.paid", "order.erased", "order.erased"}, f.history())
}

func TestErase_unfinishedRefund(t *testing.T) {
	t.Parallel()
	requireNotErased(t, map[string]refusal{"unfinished refund": {
		[]step{createPaid(visa), sendReceipts, makeUnavailable(makeRefund), refund("503 outcome unknown, 2s")},
		"one of its idempotency keys is unfinished",
	}})
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
	checkRefundInvariants(t, f)
}
