package main_test

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

const listEndpoint = "GET /v1/payment_intents"

// newFixtureAnHourAgo returns a fixture whose provider's clock is an hour behind. After
// createPaidOrders, its payments and orders are an hour old.
func newFixtureAnHourAgo(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.stripe = stripetest.New(stripetest.Options{Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	provider := httptest.NewServer(f.stripe)
	t.Cleanup(provider.Close)
	t.Cleanup(f.stripe.Close)
	f.environ = f.with("STRIPE_API_BASE="+provider.URL, "LOG_LEVEL=error")
	return f
}

func (f *fixture) createPaidOrders(idempotencyKeys ...string) []string {
	f.t.Helper()
	a := f.serve(f.with("LOG_LEVEL=info"), "--shutdown-delay", "0")
	var ids []string
	for _, key := range idempotencyKeys {
		ids = append(ids, programtest.RequirePaid(f.t, a.MustOrder(key, programtest.Tea)))
	}
	a.Stop()
	f.exec("UPDATE orders SET created_at = created_at - interval '1 hour', paid_at = paid_at - interval '1 hour'")
	f.exec("UPDATE idempotency_keys SET created_at = created_at - interval '1 hour', updated_at = updated_at - interval '1 hour', finished_at = finished_at - interval '1 hour'")
	return ids
}

// A discrepancy is reported every night and listed with the failed jobs, until an operator has acknowledged it.
func TestReconcile_exitCodes(t *testing.T) {
	t.Parallel()
	f := newFixtureAnHourAgo(t)
	ids := f.createPaidOrders("reconciled-order-001", "reconciled-order-002", "reconciled-order-003")

	stdout, stderr := programtest.Succeed(t, f.environ, "reconcile")
	require.Regexp(t, `^Compared 3 intents and 0 refunds from \S+Z to \S+Z\. Discrepancies: 0, fixed: 0\. Foreign intents: 0\.\n$`, stdout)
	require.Empty(t, stderr)

	f.exec("DELETE FROM orders WHERE id = $1", ids[1])
	code, stdout, stderr := programtest.Run(t, f.environ, "reconcile", "--fix")
	require.Equal(t, 1, code)
	require.Equal(t, "orders: discrepancies: 1\n", stderr)
	lines := strings.Split(stdout, "\n")
	require.Regexp(t, `^\{"id":"([0-9a-f-]{36})","found_at":"\S+Z","kind":"unrecorded_charge","account_id":"[0-9a-f-]{36}","order_id":"`+ids[1]+`","key_id":"[0-9a-f-]{36}","intent_id":"pi_\w+",`+
		`"provider":\{"amount":2500,"currency":"usd"\},"created":"\S+Z","detail":"intent succeeded, order missing","fixed":false\}$`, lines[0])
	require.Regexp(t, `^Compared 3 intents and 0 refunds .* Discrepancies: 1, fixed: 0\. `, lines[1])

	listed, _ := programtest.Succeed(t, f.quiet(), "jobs", "list")
	found := regexp.MustCompile(`(?m)^([0-9a-f-]{36})  .*  0         discrepancy      unrecorded_charge\n    account ` + f.account().String() + ` \{.*"order_id": "` + ids[1] + `".*\}$`).FindStringSubmatch(listed)
	require.NotNil(t, found, listed)
	require.Contains(t, programtest.Fail(t, f.quiet(), "jobs", "retry", found[1], "--reason", "a test"), "a discrepancy ends with jobs delete")
	programtest.Succeed(t, f.quiet(), "jobs", "delete", found[1], "--reason", "refunded by hand", "--by", "grace")
	require.Equal(t, 1, f.count(`SELECT count(*) FROM audit_records WHERE action = 'discrepancy.acknowledge' AND data @> '{"by": "grace"}'`))
	stdout, _ = programtest.Succeed(t, f.environ, "reconcile")
	require.Contains(t, stdout, "Discrepancies: 0, fixed: 0.")
}

func TestReconcile_incomplete(t *testing.T) {
	t.Parallel()
	f := newFixtureAnHourAgo(t)
	const notCompared = "orders: records were not compared: "
	rejecting := f.stripe.Inject(stripetest.Rule{Fault: stripetest.Unauthorized, Endpoint: listEndpoint, After: 1, Times: stripetest.Always}) // the first list is the try at the start
	code, stdout, stderr := programtest.Run(t, f.environ, "reconcile")
	rejecting.Release()
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, notCompared+"list the provider's intents: payments: ")

	code, _, stderr = programtest.Run(t, f.environ, "reconcile", "--since", "5m")
	require.Equal(t, 2, code)
	require.Equal(t, notCompared+"--since 5m0s is not more than COMPLETER_GRACE, 5m0s, within which activity is ignored\n", stderr)

	code, _, stderr = programtest.Run(t, f.with("DATABASE_URL=postgres://u@127.0.0.1:1/orders"), "reconcile")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, notCompared+"connect to the database (DATABASE_URL): ")
}
