package main_test

import (
	"context"
	"encoding/json"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func (a *api) orderAs(idempotencyKey, preference string) (apiResponse, error) {
	return a.do(context.Background(), http.MethodPost, "/v1/orders", tea,
		http.Header{"Idempotency-Key": {idempotencyKey}, "Prefer": {preference}})
}

// accepted sends an order with respond-async and returns the URL of the key's status.
func (a *api) accepted(idempotencyKey string) (location string) {
	a.t.Helper()
	got, err := a.orderAs(idempotencyKey, "respond-async")
	require.NoError(a.t, err)
	require.Equal(a.t, http.StatusAccepted, got.status, got.body)
	return got.header.Get("Location")
}

// keyStatus returns the state of a key and the status of its response.
func (a *api) keyStatus(location string) (state string, response int) {
	a.t.Helper()
	got, err := a.do(context.Background(), http.MethodGet, location, "", nil)
	require.NoError(a.t, err)
	require.Equal(a.t, http.StatusOK, got.status, got.body)
	var status struct {
		State    string
		Response struct{ Status int }
	}
	require.NoError(a.t, json.Unmarshal([]byte(got.body), &status))
	return status.State, status.Response.Status
}

// The client got a 202, the card was charged, and then the process was killed.
func TestServe_killedAfterA202(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ)
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirmEndpoint, Times: stripetest.Always})
	location := a.accepted("accepted-order-key")
	<-held.Reached()
	a.signal(syscall.SIGKILL)
	a.wait()
	held.Release()

	b := f.serve(f.environ, "--shutdown-delay", "0")
	state, _ := b.keyStatus(location)
	require.Equal(t, "in_progress", state, "until the lease ends")
	f.exec("UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour', last_run_at = last_run_at - interval '1 hour'")
	code, _, stderr := run(t, f.environ, "completer")
	require.Zero(t, code, stderr)
	state, response := b.keyStatus(location)
	require.Equal(t, "finished", state)
	require.Equal(t, http.StatusCreated, response)
	got, err := b.orderAs("accepted-order-key", "respond-async")
	require.NoError(t, err)
	requirePaid(t, got)
	require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	require.Len(t, f.stripe.Charges(), 1)
	require.Equal(t, 1, f.staged())
	b.stop()
}

// A stop waits for a run that has no client any more (R10).
func TestServe_stopWaitsForARunWithoutClient(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(a *api, reached <-chan struct{}){
		"202": func(a *api, _ <-chan struct{}) { a.accepted("a-run-without-client") },
		"disconnected": func(a *api, reached <-chan struct{}) {
			ctx, disconnect := context.WithCancel(context.Background())
			go func() {
				<-reached
				disconnect()
			}()
			_, err := a.do(ctx, http.MethodPost, "/v1/orders", tea, http.Header{"Idempotency-Key": {"a-run-without-client"}})
			require.ErrorIs(a.t, err, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			a := f.serve(f.environ, "--shutdown-delay", "0")
			held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
			send(a, held.Reached())
			<-held.Reached()
			a.signal(syscall.SIGTERM)
			eventually(t, func() bool { return a.ready() == 0 })
			require.False(t, a.hasExited())
			held.Release()
			require.Zero(t, a.wait())
			require.Equal(t, 1, f.count("SELECT count(*) FROM orders WHERE status = 'paid'"))
			require.Equal(t, 1, f.staged())
			require.Len(t, f.stripe.Charges(), 1)
		})
	}
}

// A stop releases the waiters and waits for the run that they wait for.
func TestServe_stopReleasesWaiters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.environ, "--shutdown-delay", "0")
	held := f.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Endpoint: confirmEndpoint})
	first := a.orderAsync("awaited-order-key-1")
	<-held.Reached()
	waiting := a.orderAsync("awaited-order-key-1", "wait=30")
	eventually(t, func() bool { // the key is polled
		return f.count(`
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND pid <> pg_backend_pid()
   AND query LIKE '%awaited%'`) > 0
	})
	a.signal(syscall.SIGTERM)
	sent := <-waiting
	require.NoError(t, sent.err)
	require.Equal(t, http.StatusConflict, sent.status)
	require.Equal(t, "1", sent.header.Get("Retry-After"))
	require.False(t, a.hasExited())
	held.Release()
	got := <-first
	require.NoError(t, got.err)
	requirePaid(t, got.apiResponse)
	require.Zero(t, a.wait())
	require.Len(t, f.stripe.Charges(), 1)
}
