package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
)

// A reaped key never executes again (R17).
func TestCreate_reapedKey(t *testing.T) {
	t.Parallel()
	for name, card := range map[string]string{"a paid order": visa, "a failed order": "pm_card_visa_chargeDeclined"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			_, err := f.create(card)
			require.NoError(t, err)
			charges := f.stripe.Charges()
			f.transport.reset()
			f.exec("DELETE FROM idempotency_keys")

			for _, again := range []string{card, "pm_card_mastercard"} {
				_, err = f.create(again)
				var expired *orders.KeyExpiredError
				require.ErrorAs(t, err, &expired)
				require.Equal(t, orderID(f.account, f.key), expired.OrderID)
				require.ErrorContains(t, err, expired.OrderID.String())
			}
			require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys"))
			require.Equal(t, charges, f.stripe.Charges())
			require.Empty(t, f.transport.calls())
			checkInvariants(t, f)
		})
	}
}

func TestRefund_reapedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	require.Equal(t, "201", outcomeOf(p.createRefund(oneRefund, `{}`)))
	require.Equal(t, 2, f.runReaper())
	f.transport.reset()

	var expired *orders.KeyExpiredError
	refund := &orders.KeyExpiredError{OrderID: p.orderID, RefundID: refundID(f.account, oneRefund)}
	_, err := p.createRefund(oneRefund, `{}`)
	require.ErrorAs(t, err, &expired)
	require.Equal(t, refund, expired, "takes precedence over the amount")
	_, err = f.service.Create(t.Context(), request(t, f.account, oneRefund, visa))
	require.ErrorAs(t, err, &expired)
	require.Equal(t, refund, expired, "an order under the key of a refund")
	_, err = p.createRefund(f.key, `{}`)
	require.ErrorAs(t, err, &expired)
	require.Equal(t, &orders.KeyExpiredError{OrderID: p.orderID}, expired, "a refund under the key of an order")
	require.Equal(t, "expired", outcomeOf(f.create(visa)))
	require.Empty(t, f.transport.calls())
	require.Zero(t, f.count("SELECT count(*) FROM idempotency_keys"))
	checkRefundInvariants(t, f)
}
