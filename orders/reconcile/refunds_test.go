package reconcile_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

func paidAndRefunded(card string) Step {
	return func(f *Fixture) { f.Do(CreatePaid(card), Refund("201")) }
}

// What no event has reported is recorded, however old the order is. Only what an operator has to know is reported.
// [TestChanges] has more changes.
func TestRun_changes(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	late := []string{"refund_failed_late: expired_or_canceled_card"}
	for name, test := range map[string]struct {
		age     time.Duration // of the order, when it changes
		setup   []Step
		act     Step
		changes string
		found   []string
	}{
		"a key stuck in a refund": {
			0, []Step{paid, RateLimit(MakeRefund), Refund("503 unavailable, 2s")}, nil, "paid 0: pending 1800 api", nil,
		},
		"a pending refund": {0, []Step{paidAndRefunded(PendingRefund)}, nil, "partially_refunded 1800: pending 1800 api", nil},
		"last month's order refunded at the dashboard": {
			month, []Step{paid}, refundAtDashboard(7, ""), "partially_refunded 7: succeeded 7 provider", nil,
		},
		"a foreign payment refunded": {0, []Step{paid}, func(f *Fixture) {
			insertRefund(f, "payment_intent", insertForeignIntent(f, "payment_method", Visa, "confirm", "true",
				"automatic_payment_methods[enabled]", "true", "automatic_payment_methods[allow_redirects]", "never"))
		}, "paid 0: ", nil},
		"a refund of last month that failed":     {month, []Step{paidAndRefunded(PendingRefund)}, failRefund, "paid 0: failed 1800 api", late},
		"a refund that failed after its success": {0, []Step{paidAndRefunded(refundFail)}, failRefund, "paid 0: failed 1800 api", late},
		"a dispute":                              {month, []Step{paid}, dispute(700, "needs_response", "under_review"), "paid 0: ; under_review 700", nil},
		"a decided dispute of last month": {
			month,
			[]Step{paid, dispute(700, "needs_response"), func(f *Fixture) { require.NoError(f.T, syncOrder(f)) }},
			func(f *Fixture) { require.NoError(f.T, f.Stripe.UpdateDispute(f.Stripe.Disputes()[0].ID, "lost")) },
			"paid 0: ; lost 700", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLateFixture(t, test.age+time.Hour, test.setup...)
			ageBy(f, test.age)
			if test.act != nil {
				test.act(f)
			}
			age(f)
			for _, fix := range []bool{false, true} {
				f.Transport.Reset()
				require.Equal(t, test.found, inWords(runReconcile(f, fix)))
				require.Equal(t, test.changes, changes(f))
				require.Empty(t, staged(f))
				require.Zero(t, f.Transport.Count("cancel"))
				requireNoMoneyMoved(f)
			}
			if !regexp.MustCompile("pending|review").MatchString(test.changes) {
				require.Equal(t, 2, f.Transport.Count("list"), "what is final is not read again")
			}
		})
	}
}

// A refund that is in progress is neither missing nor read again.
func TestRun_recentRefund(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string][]Step{
		"not found":           {paidAndRefunded(Visa), sql("UPDATE refunds SET provider_refund_id = 're_UNKNOWN'")},
		"not recorded":        {paid, refundAtDashboard(7, "")},
		"with another status": {paidAndRefunded(PendingRefund), failRefund},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLateFixture(t, 0, setup...)
			before := changes(f)
			require.Empty(t, runReconcile(f, true).Discrepancies)
			require.Equal(t, before, changes(f))
		})
	}
}

// What a read has found about our refund stays open until another read does not find it.
func TestRun_absentRefund(t *testing.T) {
	t.Parallel()
	for kind, test := range map[string]struct{ setup, remedy string }{
		"missing_at_provider": {
			"UPDATE refunds SET provider_refund_id = 're_UNKNOWN'", "DELETE FROM refunds WHERE provider_refund_id = 're_UNKNOWN'",
		},
		"orphaned_record": {
			"UPDATE refunds SET provider_refund_id = NULL, status = 'pending', id = '" + uuid.NewString() + "'",
			"UPDATE refunds SET status = 'failed', failure_reason = 'canceled' WHERE provider_refund_id IS NULL",
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			requireStaysFound(t, kind+": ", test.remedy, paidAndRefunded(Visa), sql(test.setup))
		})
	}
}

// While the shop is closed after lost rows, only what differs is read. The nightly comparison also reads a refund
// that is not final.
func TestRun_lostRowsReadsDifferences(t *testing.T) {
	t.Parallel()
	f := newLateFixture(t, 0, paidAndRefunded(PendingRefund))
	f.Exec("UPDATE refunds SET created_at = created_at - interval '1 day'")
	readAt := func() (at time.Time) {
		require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT coalesce(provider_read_at, created_at) FROM orders").Scan(&at))
		return at
	}
	before := readAt()
	for _, lostRows := range []bool{true, false} {
		report, err := compare(f, func(o *reconcile.Options) { o.LostRows = lostRows })
		require.NoError(t, err)
		require.Empty(t, report.Discrepancies)
		require.Equal(t, lostRows, readAt().Equal(before))
	}
}

// A read that fails is reported, and the worker tries it again.
func TestRun_readFails(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(Visa), refundAtDashboard(7, ""), age)
	failing := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.AccountNotReady, Endpoint: ListDisputes, OrderID: OrderID(f.Account, f.Key).String(), Times: stripetest.Always})
	report := runReconcile(f, true)
	require.Len(t, report.Discrepancies, 1)
	require.Contains(t, inWords(report)[0], "provider_change:  => not fixed: list the disputes of ID: payments: not_executed, status 400")
	require.Equal(t, 1, report.Open())
	require.NotEmpty(t, staged(f))
	failing.Release()
	f.Exec("UPDATE staged_jobs SET run_at = now() WHERE kind = 'provider_change'")
	require.Empty(t, runReconcile(f, true).Discrepancies)
	require.Empty(t, staged(f))
}

// orders reconcile prints nothing that a client sent.
func TestReport_json(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(Visa))
	f.Exec("UPDATE refunds SET amount = 1700")
	f.InsertIntent("metadata[account_id]", uuid.NewString())
	age(f)
	report, err := compare(f, func(c *reconcile.Options) { c.LostRows, c.Fix = true, true })
	require.NoError(t, err)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	for _, member := range []string{"refund_id", "provider_refund_id", "local", "read_at", "fix_error"} {
		require.Contains(t, string(text), `"`+member+`":`)
	}
	require.NotRegexp(t, "ada@example.com|Assam|b-77|"+string(f.Key), string(text))
}

// The statements of the runbook end an orphaned record, and change no balance.
func TestRunbook_orphanedRecord(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	entry := regexp.MustCompile("(?m)^- `orphaned_record`: .*$").FindString(string(page))
	for table, setup := range map[string][]Step{
		"orders":  {StopBefore(Confirm)},
		"refunds": {paid, RateLimit(MakeRefund), Refund("503 unavailable, 2s")},
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			f := newOldFixture(t, setup...)
			f.Exec("DELETE FROM idempotency_keys WHERE finished_at IS NULL")
			age(f)
			require.Len(t, runReconcile(f, true).Discrepancies, map[string]int{"orders": 2, "refunds": 1}[table], "--fix cancels the intent")
			statement := regexp.MustCompile("`(UPDATE " + table + " SET [^`]+)`").FindStringSubmatch(entry)
			require.NotEmpty(t, statement, "the runbook has no statement for %s", table)
			f.Exec(strings.ReplaceAll(statement[1], "'…'", "(SELECT id FROM "+table+")"))
			require.Empty(t, runReconcile(f, true).Discrepancies)
			require.Zero(t, f.Count("SELECT amount_refunded FROM orders"))
		})
	}
}

func TestRun_staysFound_refundOfLostOrder(t *testing.T) {
	t.Parallel()
	requireStaysFound(t, "unrecorded_refund: refund succeeded, payment not recorded", "",
		paid, Refund("201"), sql("DELETE FROM refunds", "DELETE FROM idempotency_keys"), LoseRows)
}
