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
		for n := 1; n <= test.commits; n++ {
			for name, kind := range map[string]idempotencytest.Fault{
				"connection cut before": idempotencytest.CutBefore,
				"connection cut after":  idempotencytest.CutAfter,
				"not replicated":        idempotencytest.NotReplicated,
			} {
				t.Run(fmt.Sprintf("%s, commit %d, %s", operation, n, name), func(t *testing.T) {
					t.Parallel()
					proxy := idempotencytest.NewProxy(t)
					f := newFixture(t, options{configure: proxy.Configure})
					f.do(test.prepare...)
					proxy.Strike(n, kind)
					if kind == idempotencytest.NotReplicated {
						f.do(test.send("database unavailable"), retry("201"))
					} else {
						f.do(test.send("201"))
					}
					require.True(t, proxy.Struck())
					require.Len(t, f.intents(), 1)
					if operation == "refund" {
						require.Len(t, f.stripe.Refunds(), 1)
						checkRefundInvariants(t, f)
						return
					}
					f.checkFinal()
				})
			}
		}
	}
}
