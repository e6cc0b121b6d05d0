package orders_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders"
)

func deleteIntent(f *fixture) {
	f.exec("UPDATE orders SET payment_intent_id = 'pi_deleted' WHERE id = $1", orderID(f.Account, f.key))
}

func TestDeletedIntent_resolve(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, stopBefore(confirm), deleteIntent, retry("503 outcome unknown, 1m0s"))
	require.Equal(t, 1, f.log.errorLines())
	require.Equal(t, "422 closed_by_operator", outcomeOf(f.resolveKey(f.key)))
	require.Equal(t, orders.StatusPaymentFailed, f.getOrder().Status)
	require.Equal(t, "get 404 ×2", f.transport.calls())
}

func TestDeletedIntent_refund(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, createPaid(visa))
	missing := respond(listRefunds, 400, `"type":"invalid_request_error","code":"resource_missing","param":"payment_intent"`)
	f.do(missing, refund("503 unavailable, 1m0s"), missing, retry("503 outcome unknown, 1m0s"))
	f.ageLastRun(time.Hour)
	f.do(missing)
	require.Equal(t, "422 closed_by_operator", outcomeOf(f.resolveKey(f.refundKey())))
	f.do(expectCalls("list 400 ×3"), expectSummary("paid 0, failed 1800; 0"))
}
