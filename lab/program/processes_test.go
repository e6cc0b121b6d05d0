// Package program_test contains what the program's tests leave out: evidence that a shop does
// not need while it changes a command.
package program_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/payments/stripetest"
)

const confirmEndpoint = "POST /v1/payment_intents/{id}/confirm"

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// Two processes on one database act as one API. Concurrent requests to both charge an
// order once and get one response. If one process dies, the other takes its keys over.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	f := labtest.NewFixture(t)
	env := f.With("STEP_TIMEOUT=1s", "LEASE_DURATION=2s")
	a, b := f.Serve(env, "--shutdown-delay", "0"), f.Serve(env, "--shutdown-delay", "0")
	const orders = 4
	var responses [orders][4]programtest.Response
	var clients errgroup.Group
	for n := range orders {
		for i, process := range []*programtest.API{a, b, b, a} {
			clients.Go(func() (err error) {
				responses[n][i], err = labtest.UntilPaid(t.Context(), process, fmt.Sprintf("shared-order-key-%d", n))
				return err
			})
		}
	}
	require.NoError(t, clients.Wait(), "every response is 201 or retryable")
	for _, ofOrder := range responses {
		replays := 0
		for _, got := range ofOrder {
			require.Equal(t, ofOrder[0].Body, got.Body)
			if got.Header.Get("Idempotent-Replayed") == "true" {
				replays++
			}
		}
		require.Equal(t, len(ofOrder)-1, replays)
	}
	require.Len(t, f.Stripe.Charges(), orders)

	held := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirmEndpoint, Times: stripetest.Always})
	lost := make(chan error, 1)
	go func() {
		_, err := a.Order(t.Context(), "orphan-order-key-1")
		lost <- err
	}()
	<-held.Reached()
	early, err := b.Order(t.Context(), "orphan-order-key-1")
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, early.Status, "in progress in the other process")
	a.Signal(syscall.SIGKILL)
	require.Error(t, <-lost)
	held.Release()
	_, err = labtest.UntilPaid(t.Context(), b, "orphan-order-key-1")
	require.NoError(t, err)
	require.Len(t, f.Stripe.Charges(), orders+1)
	require.Empty(t, f.Stripe.OrdersChargedTwice())
	require.Equal(t, orders+1, f.Count("SELECT count(*) FROM staged_jobs"))
	b.Stop()
}

// Orders that wait for their customers hold no connection, no lease, no goroutine and no
// memory, and cause no call to the provider.
func TestActions_waiting(t *testing.T) {
	t.Parallel()
	const before, waiting, memory = 30, 80, 1 << 18
	f := labtest.NewFixture(t)
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
	labtest.Run(t, f.Environ, "completer")
	require.Len(t, f.Stripe.Requests(), sent+2, "the completer tries the API key at its start, and does not run them yet")

	t.Logf("heap: %+d KiB, goroutines: %+d", (heap()-heapBefore)>>10, goroutines()-goroutinesBefore)
	a.Stop()
}
