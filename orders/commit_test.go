package orders_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
)

// Each COMMIT of an order and of a refund has each unknown outcome (R22).
func TestCommitUnknown(t *testing.T) {
	t.Parallel()
	for operation, test := range map[string]struct {
		prepare []step
		send    func(want string) step
		commits int
	}{
		"order":  {nil, create, 3},
		"refund": {[]step{create("201")}, refund, 2},
	} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			proxy := idempotencytest.NewProxy(t)
			shared := newFixture(t, options{configure: proxy.Configure})
			for n := 1; n <= test.commits; n++ {
				for name, fault := range map[string]idempotencytest.Fault{
					"connection cut before": idempotencytest.CutBefore,
					"connection cut after":  idempotencytest.CutAfter,
					"not replicated":        idempotencytest.NotReplicated,
				} {
					t.Run(fmt.Sprintf("commit %d, %s", n, name), func(t *testing.T) {
						f := shared.withNewKey(t)
						f.do(test.prepare...)
						proxy.Strike(n, fault)
						if fault == idempotencytest.NotReplicated {
							f.do(test.send("database unavailable"), retry("201"))
						} else {
							f.do(test.send("201"))
						}
						require.True(t, proxy.Struck())
						f.do(expectIntents("succeeded"), expectCharges(1))
						if operation == "refund" {
							f.do(expectSummary(refunded))
							return
						}
						f.checkResponse()
					})
				}
			}
			if operation == "refund" {
				checkRefundInvariants(t, shared)
			} else {
				checkInvariants(t, shared)
			}
		})
	}
}
