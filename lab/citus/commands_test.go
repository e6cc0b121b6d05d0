//go:build citus

package citus_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/payments/stripetest"
)

var uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// Every command runs on a schema that Citus has placed, and every kind of request. TestSchemas runs the worker
// and the completer as services.
func TestCommands(t *testing.T) {
	c := startCluster(t)
	f := c.fixture("shop", "EVENTS_URL=http://127.0.0.1:9", "EVENTS_SECRET="+secret) // no server listens there
	f.Environ = f.With("SMTP_URL=smtp://"+programtest.NewMailServer(t, "").Address, "RECEIPTS_FROM=shop@example.com")
	run := func(args ...string) string { return labtest.Run(t, f.Environ, args...) }
	role, err := pgx.Connect(t.Context(), c.coordinator.url("orders", "orders"))
	require.NoError(t, err)
	var sessions int
	require.NoError(t, role.QueryRow(t.Context(), "SELECT count(*) FROM run_command_on_workers('SHOW lock_timeout') WHERE result = '2s'").Scan(&sessions))
	require.NoError(t, role.Close(t.Context()))
	require.Len(t, c.workers, sessions)

	api := f.Serve(f.Environ, "--shutdown-delay", "0")
	post := func(path, key, body string, status int) programtest.Response {
		t.Helper()
		response := api.MustDo(http.MethodPost, path, body, http.Header{"Idempotency-Key": {key}})
		require.Equal(t, status, response.Status, response.Body)
		return response
	}
	rejecting := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: "POST /v1/payment_intents/{id}/confirm", Times: stripetest.Always})
	for _, key := range []string{"to-be-completed-1", "to-be-retried-001", "to-be-resolved-01"} {
		post("/v1/orders", key, programtest.Tea, http.StatusServiceUnavailable)
	}
	rejecting.Release()
	require.Contains(t, run("keys", "show", "to-be-retried-001"), "charge_created")
	run("keys", "retry", "to-be-retried-001", "--reason", "a test")
	run("keys", "resolve", "to-be-resolved-01", "--reason", "a test")
	f.Exec("UPDATE idempotency_keys SET updated_at = now() - interval '10 minutes' WHERE finished_at IS NULL")
	require.Contains(t, run("keys", "list"), "charge_created")
	run("completer")
	require.Len(t, f.Stripe.Charges(), 2)
	paid := post("/v1/orders", "to-be-completed-1", programtest.Tea, http.StatusCreated)

	order := paid.Header.Get("Location")
	named := strings.Replace(programtest.Tea, "{", `{"reference":"basket-17",`, 1)
	post("/v1/orders", "a-named-order-001", named, http.StatusCreated)
	require.Contains(t, post("/v1/orders", "a-named-order-002", named, http.StatusUnprocessableEntity).Body, "/problems/order-exists")
	post(order+"/refunds", "a-refund-of-order", `{"amount":500}`, http.StatusCreated)
	post(order+"/refunds", "another-refund-01", `{"amount":2500}`, http.StatusUnprocessableEntity)
	waiting := strings.Replace(programtest.Tea, "pm_card_visa", "pm_card_authenticationRequired", 1)
	post("/v1/orders", "an-order-to-cancel", waiting, http.StatusAccepted)
	var pending string
	require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT id::text FROM orders WHERE status = 'requires_action'").Scan(&pending))
	post("/v1/orders/"+pending+"/cancel", "a-cancel-of-order", "{}", http.StatusOK)
	for _, path := range []string{order, order + "/refunds", "/v1/orders?limit=2", "/v1/orders?reference=basket-17", "/v1/idempotency-keys/to-be-completed-1"} {
		require.Equal(t, http.StatusOK, api.MustDo(http.MethodGet, path, "", nil).Status, path)
	}

	_, err = f.Stripe.RefundAtDashboard(f.Stripe.Charges()[0].IntentID, 300, "")
	require.NoError(t, err)
	require.Equal(t, 1, labtest.Start(t, f.Environ, "worker", "--once").Wait(), "no event could be sent")
	require.Equal(t, 1, f.Count("SELECT count(*) FROM refunds WHERE source = 'provider'"))
	require.Equal(t, 1, f.Count("SELECT count(*) FROM provider_event_place"))
	f.Exec("UPDATE staged_jobs SET failed_at = now()")
	job := uuidPattern.FindString(run("jobs", "list"))
	run("jobs", "retry", job, "--reason", "a test")
	run("jobs", "retry", "all", "--reason", "a test")
	f.Exec("UPDATE staged_jobs SET failed_at = now()")
	run("jobs", "delete", job, "--reason", "a test")
	f.Exec("DELETE FROM staged_jobs")

	f.Exec("DELETE FROM idempotency_keys WHERE idempotency_key = 'a-named-order-001'")
	f.Exec("DELETE FROM orders WHERE idempotency_key = 'a-named-order-001'")
	lost := labtest.Start(t, f.Environ, "reconcile", "--lost-rows", "--fix")
	require.Equal(t, 1, lost.Wait())
	require.Contains(t, lost.Stdout.String(), "order missing, key expired")
	found := uuidPattern.FindString(lost.Stdout.String())
	again := labtest.Start(t, f.Environ, "jobs", "retry", found, "--reason", "a test")
	require.Equal(t, 1, again.Wait())
	require.Contains(t, again.Stderr.String(), "a discrepancy ends with jobs delete")
	run("jobs", "delete", found, "--reason", "a test")
	run("reconcile")

	f.Exec("UPDATE idempotency_keys SET finished_at = now() - interval '73 hours'")
	run("reaper", "--dry-run")
	run("reaper")
	require.Zero(t, f.Count("SELECT count(*) FROM idempotency_keys WHERE expired_at IS NULL"))
	charges := len(f.Stripe.Charges())
	post("/v1/orders", "to-be-completed-1", programtest.Tea, http.StatusUnprocessableEntity)
	require.Len(t, f.Stripe.Charges(), charges)
	var account string
	require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT id::text FROM accounts").Scan(&account))
	run("erase", "--account", account, "--order", strings.TrimPrefix(order, "/v1/orders/"))
	require.Equal(t, 1, f.Count("SELECT count(*) FROM orders WHERE email IS NULL"))

	require.Contains(t, run("accounts", "list"), account)
	id := uuidPattern.FindString(run("accounts", "keys", "create", "--account", account))
	require.Contains(t, run("accounts", "keys", "revoke", "--account", account, id), "was revoked")
	require.Contains(t, run("accounts", "keys", "list", "--account", account), id)
	require.Contains(t, run("migrate", "status"), "applied  00001_initial.sql")
	api.Stop()
}
