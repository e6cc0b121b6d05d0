package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvents_stagedRefunds(t *testing.T) {
	t.Parallel()
	requireStaged(t, map[string]staging{
		"refunded":       {[]step{create("201"), refund("201"), retry("201")}, []string{"order.paid", "receipt", "refund.created"}},
		"refund refused": {[]step{create("201"), refundAtProvider(), refund("422 charge_already_refunded")}, []string{"order.paid", "receipt", "refund.updated"}},
	})
}

// Rows that a failover loses are staged again under the same id, so the shop that has the event already
// ignores it.
func TestEvents_lostRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{}, setEndpoint, create("201"), refund("201"))
	ids := func() []string {
		rows, err := f.Pool.Query(t.Context(), "SELECT id || ' ' || args FROM staged_jobs WHERE kind = 'event' ORDER BY id")
		require.NoError(t, err)
		return collectStrings(t, rows)
	}
	before := ids()
	require.Len(t, before, 2)
	loseRefunds(f)
	loseRows(f)
	require.Empty(t, ids())
	f.do(create("201"), refund("201"))
	require.Equal(t, before, ids())
}
