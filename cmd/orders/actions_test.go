package main_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// Orders that wait for their customers hold no connection, no lease, no goroutine and no
// memory, and cause no call to the provider.
func TestActions_waiting(t *testing.T) {
	t.Parallel()
	const before, waiting, memory = 30, 80, 1 << 18
	f := newFixture(t)
	a := f.serve(f.with("ADMIN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	admin := a.admin()
	measure := func(pattern, path string) (n int) {
		_, profile := get(t, admin+path)
		found := regexp.MustCompile(pattern).FindStringSubmatch(profile)
		require.NotNil(t, found, profile)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	heap := func() int { return measure(`# HeapAlloc = (\d+)`, "/debug/pprof/heap?gc=1&debug=1") }
	goroutines := func() int { return measure(`goroutine profile: total (\d+)`, "/debug/pprof/goroutine?debug=1") }
	key := func(i int) string { return fmt.Sprintf("waits-for-its-customer-%04d", i) }
	create := func(from, to int) {
		var clients errgroup.Group
		clients.SetLimit(8)
		for i := from; i < to; i++ {
			clients.Go(func() error {
				response, err := a.order(key(i), challengedTea())
				if err == nil && response.status != http.StatusAccepted {
					err = fmt.Errorf("%d %s", response.status, response.body)
				}
				return err
			})
		}
		require.NoError(t, clients.Wait())
	}
	create(0, before) // opens connections and fills pools
	heapBefore, goroutinesBefore := heap(), goroutines()
	create(before, before+waiting)

	count := func(rows string) int { return f.count("SELECT count(*) FROM " + rows) }
	require.Equal(t, before+waiting, count("orders WHERE status = 'requires_action'"))
	require.Equal(t, before+waiting, count("idempotency_keys WHERE action_required_at IS NOT NULL"))
	require.Zero(t, count("idempotency_keys WHERE locked_at IS NOT NULL"), "no lease is held")
	require.Zero(t, count("pg_stat_activity WHERE datname = current_database() AND application_name = 'orders-api' AND state <> 'idle'"), "no connection is held")
	require.Less(t, heap(), heapBefore+memory)
	require.Less(t, goroutines(), goroutinesBefore+10)

	sent := len(f.stripe.Requests())
	succeed(t, f.environ, "completer")
	require.Len(t, f.stripe.Requests(), sent, "the completer does not run them yet")

	t.Logf("heap: %+d KiB, goroutines: %+d", (heap()-heapBefore)>>10, goroutines()-goroutinesBefore)
	a.stop()
}
