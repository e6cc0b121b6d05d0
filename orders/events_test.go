package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func setEndpoint(f *fixture) { f.Orders.Events = true }

// stagedJobs returns the types of the events, and receipt, whose transactions must be those of the changes.
func (f *fixture) stagedJobs() []string {
	f.t.Helper()
	rows, err := f.Pool.Query(f.t.Context(), `
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
 ORDER BY created_at, 1`, orderID(f.Account, f.key))
	require.NoError(f.t, err)
	return collectStrings(f.t, rows)
}

// requireStaged requires that each change stages one event in its transaction (R28, events to the shop), and
// a payment a receipt (R15, staged receipt).
func requireStaged(t *testing.T, changes map[string]staging) {
	t.Helper()
	for name, test := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{connections: 2}, setEndpoint)
			f.do(test.steps...)
			require.Equal(t, test.want, f.stagedJobs())
		})
	}
}

// staging has what these steps stage.
type staging struct {
	steps []step
	want  []string
}

func TestEvents_staged(t *testing.T) {
	t.Parallel()
	requireStaged(t, map[string]staging{
		"paid":                    {[]step{create("201"), retry("201")}, []string{"order.paid", "receipt"}},
		"declined":                {[]step{payWith(declinedCard), create("402 card_declined generic_decline"), retry("402 card_declined generic_decline")}, []string{"order.payment_failed"}},
		"approved":                {[]step{payWith(challengeCard), create("202 action required"), retry("202 action required"), approve, retry("201")}, []string{"order.requires_action", "order.paid", "receipt"}},
		"unknown, and then paid":  {[]step{loseResponse(confirm), makeUnavailable(getIntent), create("503 outcome unknown, 2s"), retry("201")}, []string{"order.paid", "receipt"}},
		"resolved by an operator": {[]step{fault(stripetest.Unauthorized, confirm), create("503 unavailable, 1m0s"), resolve("422 canceled")}, []string{"order.payment_failed"}},
	})
}
