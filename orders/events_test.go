package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/payments/stripetest"
)

// stagedJobs returns the types of the events, and receipt, whose transactions must be those of the changes.
func stagedJobs(f *Fixture) []string {
	f.T.Helper()
	return f.Texts(`
SELECT coalesce(j.args->>'type', j.kind) || CASE WHEN EXISTS (
           SELECT FROM audit_records a
            WHERE a.xmin = j.xmin
              AND a.resource_id = coalesce(j.args->>'refund_id', j.args->>'order_id')
              AND a.action = CASE coalesce(j.args->>'type', j.kind)
                                 WHEN 'receipt' THEN 'order.paid'
                                 WHEN 'refund.created' THEN 'refund.succeeded'
                                 WHEN 'refund.updated' THEN 'refund.failed'
                                 ELSE j.args->>'type'
                             END
       ) THEN '' ELSE ' in another transaction' END
  FROM staged_jobs j
 WHERE kind IN ('event', 'receipt')
   AND j.args->>'order_id' = $1
 ORDER BY created_at, 1`, OrderID(f.Account, f.Key))
}

// requireStaged requires that each change stages one event in its transaction (R28, events to the shop), and
// a payment a receipt (R15, staged receipt).
func requireStaged(t *testing.T, changes map[string]staging) {
	t.Helper()
	for name, test := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFixture(t, Setup{Connections: 2}, SetEndpoint)
			f.Do(test.steps...)
			require.Equal(t, test.want, stagedJobs(f))
		})
	}
}

// staging has what these steps stage.
type staging struct {
	steps []Step
	want  []string
}

func TestEvents_staged(t *testing.T) {
	t.Parallel()
	requireStaged(t, map[string]staging{
		"paid":                    {[]Step{Create("201"), Retry("201")}, []string{"order.paid", "receipt"}},
		"declined":                {[]Step{PayWith(DeclinedCard), Create("402 card_declined generic_decline"), Retry("402 card_declined generic_decline")}, []string{"order.payment_failed"}},
		"approved":                {[]Step{PayWith(ChallengeCard), Create("202 action required"), Retry("202 action required"), Approve, Retry("201")}, []string{"order.requires_action", "order.paid", "receipt"}},
		"unknown, and then paid":  {[]Step{LoseResponse(Confirm), MakeUnavailable(GetIntent), Create("503 outcome unknown, 2s"), Retry("201")}, []string{"order.paid", "receipt"}},
		"resolved by an operator": {[]Step{Fault(stripetest.Unauthorized, Confirm), Create("503 unavailable, 1m0s"), resolve("422 canceled")}, []string{"order.payment_failed"}},
	})
}
