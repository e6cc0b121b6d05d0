package orders_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/postgres"
)

// Each of the three COMMITs has each kind of unknown outcome, so that its record runs
// again, or was committed without an acknowledgement (R22).
func TestCreate_commitUnknown(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		for name, fault := range map[string]idempotencytest.Fault{
			"connection cut before": idempotencytest.CutBefore,
			"connection cut after":  idempotencytest.CutAfter,
			"session ended before":  idempotencytest.FatalBefore,
			"session ended after":   idempotencytest.FatalAfter,
			"not replicated":        idempotencytest.NotReplicated,
		} {
			t.Run(fmt.Sprintf("commit %d, %s", n, name), func(t *testing.T) {
				t.Parallel()
				proxy := idempotencytest.NewProxy(t)
				f := newFixture(t, options{configure: proxy.Configure})
				proxy.Strike(n, fault)
				result, err := f.create(visa)
				require.True(t, proxy.Struck())
				if fault == idempotencytest.NotReplicated {
					require.ErrorIs(t, err, postgres.ErrUnavailable)
					result, err = f.create(visa)
				}
				require.Equal(t, "201", outcomeOf(result, err))
				require.Len(t, f.intents(), 1)
				f.checkFinal()
			})
		}
	}
}
