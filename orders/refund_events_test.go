package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "example.com/orders-api/orders/orderstest"
)

func TestEvents_stagedRefunds(t *testing.T) {
	t.Parallel()
	requireStaged(t, map[string]staging{
		"refunded":       {[]Step{Create("201"), Refund("201"), Retry("201")}, []string{"order.paid", "receipt", "refund.created"}},
		"refund refused": {[]Step{Create("201"), RefundAtProvider(), Refund("422 charge_already_refunded")}, []string{"order.paid", "receipt", "refund.updated"}},
	})
}

// Rows that a failover loses are staged again under the same id, so the shop that has the event already
// ignores it.
func TestEvents_lostRows(t *testing.T) {
	t.Parallel()
	f := NewFixture(t, Setup{}, SetEndpoint, Create("201"), Refund("201"))
	ids := func() []string {
		return f.Texts("SELECT id || ' ' || args FROM staged_jobs WHERE kind = 'event' ORDER BY id")
	}
	before := ids()
	require.Len(t, before, 2)
	LoseRefunds(f)
	LoseRows(f)
	require.Empty(t, ids())
	f.Do(Create("201"), Refund("201"))
	require.Equal(t, before, ids())
}
