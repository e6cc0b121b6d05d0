package program_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/lab/programtest"
)

// Orders that wait for their customers hold no connection, no lease, no goroutine and no
// memory, and cause no call to the provider.
func TestActions_waiting(t *testing.T) {
	t.Parallel()
	const before, waiting, memory = 30, 80, 1 << 18
	f := programtest.NewFixture(t)
	a := f.Serve(f.With("ADMIN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	admin := &programtest.API{Base: "http://" + a.WaitFor(&a.Stderr, `serving metrics.*\baddress=([0-9.]+:[0-9]+)`)[1]}
	measure := func(pattern, path string) (n int) {
		response, err := admin.Do(t.Context(), http.MethodGet, path, "", nil)
		require.NoError(t, err)
		profile := response.Body
		found := regexp.MustCompile(pattern).FindStringSubmatch(profile)
		require.NotNil(t, found, profile)
		n, err = strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	heap := func() int { return measure(`# HeapAlloc = (\d+)`, "/debug/pprof/heap?gc=1&debug=1") }
	goroutines := func() int { return measure(`goroutine profile: total (\d+)`, "/debug/pprof/goroutine?debug=1") }
	challenged := strings.Replace(programtest.Tea, "pm_card_visa", "pm_card_threeDSecure2Required", 1)
	key := func(i int) string { return fmt.Sprintf("waits-for-its-customer-%04d", i) }
	create := func(from, to int) {
		var clients errgroup.Group
		clients.SetLimit(8)
		for i := from; i < to; i++ {
			clients.Go(func() error {
				response, err := a.Do(t.Context(), http.MethodPost, "/v1/orders", challenged, http.Header{"Idempotency-Key": {key(i)}})
				if err == nil && response.Status != http.StatusAccepted {
					err = fmt.Errorf("%d %s", response.Status, response.Body)
				}
				return err
			})
		}
		require.NoError(t, clients.Wait())
	}
	create(0, before) // opens connections and fills pools
	heapBefore, goroutinesBefore := heap(), goroutines()
	create(before, before+waiting)

	count := func(rows string) int { return f.Count("SELECT count(*) FROM " + rows) }
	require.Equal(t, before+waiting, count("orders WHERE status = 'requires_action'"))
	require.Equal(t, before+waiting, count("idempotency_keys WHERE action_required_at IS NOT NULL"))
	require.Zero(t, count("idempotency_keys WHERE locked_at IS NOT NULL"), "no lease is held")
	require.Zero(t, count("pg_stat_activity WHERE datname = current_database() AND application_name = 'orders-api' AND state <> 'idle'"), "no connection is held")
	require.Less(t, heap(), heapBefore+memory)
	require.Less(t, goroutines(), goroutinesBefore+10)

	sent := len(f.Stripe.Requests())
	programtest.Run(t, f.Environ, "completer")
	require.Len(t, f.Stripe.Requests(), sent+2, "the completer tries the key at its start, and does not run them yet")

	t.Logf("heap: %+d KiB, goroutines: %+d", (heap()-heapBefore)>>10, goroutines()-goroutinesBefore)
	a.Stop()
}
