package orders_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

// Each of the three COMMITs meets each end that leaves its outcome in doubt, so
// that records are repeated, or were done unheard (R22).
func TestCommitInDoubt(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		for name, fault := range map[string]idempotencytest.Fault{
			"cut before":     idempotencytest.CutBefore,
			"cut after":      idempotencytest.CutAfter,
			"ended before":   idempotencytest.FatalBefore,
			"ended after":    idempotencytest.FatalAfter,
			"not replicated": idempotencytest.NotReplicated,
		} {
			t.Run(fmt.Sprintf("commit %d, %s", n, name), func(t *testing.T) {
				t.Parallel()
				proxy := idempotencytest.NewProxy(t)
				s := openShop(t, terms{configure: proxy.Configure})
				proxy.Strike(n, fault)
				result, err := s.buy(visa)
				require.True(t, proxy.Struck())
				if fault == idempotencytest.NotReplicated {
					require.ErrorIs(t, err, postgres.ErrUnavailable)
					result, err = s.buy(visa)
				}
				require.Equal(t, "201", say(result, err))
				require.Len(t, s.intents(), 1)
				s.checkFinal()
			})
		}
	}
}
