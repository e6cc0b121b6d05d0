package orders_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
)

func requireExpired(t *testing.T, err error, order, refund uuid.UUID) {
	t.Helper()
	var expired *idempotency.KeyExpiredError
	require.ErrorAs(t, err, &expired)
	gotOrder, gotRefund := orders.ResourcesOf(expired.Key)
	require.Equal(t, order, gotOrder)
	require.Equal(t, refund, gotRefund)
}

func TestRefund_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	require.Equal(t, "201", outcomeOf(f.refund(oneRefund, `{}`)))
	require.Equal(t, 2, idempotencytest.Reap(t, f.pool))
	f.transport.reset()

	refund := refundID(f.account, oneRefund)
	_, err := f.refund(oneRefund, `{}`) // takes precedence over the amount
	requireExpired(t, err, orderID(f.account, f.key), refund)
	_, err = f.service.Create(t.Context(), request(t, f.account, oneRefund, visa)) // an order under the key of a refund
	requireExpired(t, err, orderID(f.account, f.key), refund)
	_, err = f.refund(f.key, `{}`) // a refund under the key of an order
	requireExpired(t, err, orderID(f.account, f.key), uuid.Nil)
	require.Equal(t, "422 key expired", outcomeOf(f.create(visa)))
	require.Empty(t, f.transport.calls())
	require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys"))
	checkRefundInvariants(t, f)
}
