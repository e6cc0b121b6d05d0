package orders_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// deleteIntent leaves the order with an intent that the provider does not have, as
// after its test data was deleted.
func (f *fixture) deleteIntent() {
	f.t.Helper()
	f.exec("UPDATE orders SET payment_intent_id = 'pi_deleted' WHERE id = $1", orderID(f.account, f.key))
}

// An operator can close an order whose intent was deleted.
func TestDeletedIntent_resolve(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(confirmEndpoint, visa)
	f.deleteIntent()
	require.Equal(t, "unknown 1m0s", outcomeOf(f.create(visa)), "within the charge window it is not given up")
	require.Equal(t, 1, f.log.errorLines())
	require.Equal(t, "422 closed_by_operator", outcomeOf(f.resolveDeleted()))
	require.Equal(t, orders.StatusPaymentFailed, f.getOrder().Status)
	require.Equal(t, "get 404 ×2", f.transport.calls())
}

// resolveDeleted is resolve without the check for a definite response of the provider.
func (f *fixture) resolveDeleted() (idempotency.Result, error) {
	f.t.Helper()
	return f.service.Resolve(f.t.Context(), f.account, idempotency.KeyID(f.account, f.key), action)
}

func TestDeletedIntent_chargeWindow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.interrupt(confirmEndpoint, visa)
	f.deleteIntent()
	f.backdate(age)
	f.ageLastRun(2 * grace)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
	require.Equal(t, "422 charge_window_over", outcomeOf(f.create(visa)))
	require.Equal(t, orders.StatusPaymentFailed, f.getOrder().Status)
}

// A refund of a deleted intent can be closed, too.
func TestDeletedIntent_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	p := f.createPaid(visa)
	f.transport.intercept(respondWith("list", 400, `"type":"invalid_request_error","code":"resource_missing","param":"payment_intent"`)(f))
	require.Equal(t, "unavailable 1m0s", outcomeOf(p.createRefund(oneRefund, `{}`)))
	require.Equal(t, "unknown 1m0s", outcomeOf(p.resumeRefund(oneRefund)))
	f.ageLastRun(time.Hour)
	require.Equal(t, "422 closed_by_operator", outcomeOf(f.withKey(t, oneRefund).resolveDeleted()))
	require.Equal(t, "list 400 ×3", f.transport.calls())
	require.Equal(t, "paid 0, failed 4300; 0", p.summary())
}
