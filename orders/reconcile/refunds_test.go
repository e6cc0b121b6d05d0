package reconcile_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

func paidAndRefunded(card string) step {
	return func(f *fixture) {
		require.Equal(f.t, http.StatusCreated, f.create(card))
		require.Equal(f.t, http.StatusCreated, f.refund())
	}
}

func dashboardRefund(f *fixture) { f.insertRefund() }

func (f *fixture) refund() int {
	f.t.Helper()
	order := orderID(f.Account, orderKey)
	result, _ := f.Refund(f.t.Context(),
		request(f.t, f.Account, refundKey, "/v1/orders/"+order.String()+"/refunds", `{"amount":1800}`))
	return result.Response.Status
}

// What no event has reported is recorded, however old the order is. Only what an operator has to know is reported.
func TestRun_changes(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	dispute := func(statuses ...string) step {
		return func(f *fixture) {
			id, err := f.Stripe.Dispute(f.intentID(), 700, "fraudulent", statuses[0])
			require.NoError(f.t, err)
			for _, status := range statuses[1:] {
				require.NoError(f.t, f.Stripe.UpdateDispute(id, status))
			}
		}
	}
	settle := func(success bool) step { return func(f *fixture) { f.settle(success) } }
	nothing := func(*fixture) {}
	for name, test := range map[string]struct {
		age        time.Duration // of the order, when it changes
		setup, act step
		state      string
		found      []string
	}{
		"a key stuck in a refund": {0, paid, failing(stripetest.RateLimit, makeRefund, (*fixture).refund), "paid 0, 1800 pending", nil},
		"a pending refund":        {0, paidAndRefunded(pendingRefund), nothing, "partially_refunded 1800, 1800 pending", nil},
		"refunded at the dashboard": {
			0, paidAndRefunded(visa), dashboardRefund, "partially_refunded 1807, 7 succeeded, 1800 succeeded", nil,
		},
		"last month's order refunded at the dashboard": {month, paid, dashboardRefund, "partially_refunded 7, 7 succeeded", nil},
		"refunded at the dashboard, which failed": {0, paidAndRefunded(pendingRefund), func(f *fixture) {
			require.NoError(f.t, f.Stripe.Settle(f.insertRefund(), false))
		}, "partially_refunded 1800, 7 failed, 1800 pending", nil},
		"a foreign payment refunded": {0, paid, func(f *fixture) {
			f.insertRefund("payment_intent", f.insertForeignIntent("payment_method", visa, "confirm", "true",
				"automatic_payment_methods[enabled]", "true", "automatic_payment_methods[allow_redirects]", "never"))
		}, "paid 0", nil},
		"refunded twice": {0, paidAndRefunded(visa), func(f *fixture) {
			f.insertRefund("amount", "1800",
				"metadata[account_id]", f.Account.String(),
				"metadata[order_id]", orderID(f.Account, orderKey).String(),
				"metadata[refund_id]", idempotency.DeriveID("refund", f.Account, refundKey).String(),
				"metadata[idempotency_key_id]", idempotency.KeyID(f.Account, refundKey).String())
		}, "partially_refunded 3600, 1800 succeeded, 1800 succeeded", nil},
		"a lost refund": {
			0, paidAndRefunded(visa), sql("DELETE FROM refunds", "DELETE FROM idempotency_keys WHERE operation = 'create_refund'",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'"), "partially_refunded 1800, 1800 succeeded", nil,
		},
		"refunded, and recorded as failed": {
			0, paidAndRefunded(visa), sql("UPDATE refunds SET status = 'failed', provider_refund_id = NULL",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'"),
			"partially_refunded 1800, 1800 succeeded",
			[]string{"refund_made_after_failure: "},
		},
		"a refund that succeeded": {0, paidAndRefunded(pendingRefund), settle(true), "partially_refunded 1800, 1800 succeeded", nil},
		"a refund of last month that failed": {
			month, paidAndRefunded(pendingRefund), settle(false), "paid 0, 1800 failed", []string{"refund_failed_late: expired_or_canceled_card"},
		},
		"a refund that failed after its success": {
			0, paidAndRefunded(refundFail), settle(false), "paid 0, 1800 failed", []string{"refund_failed_late: expired_or_canceled_card"},
		},
		"a dispute": {month, paid, dispute("needs_response", "under_review"), "paid 0, under_review", nil},
		"a decided dispute of last month": {
			month, func(f *fixture) {
				f.do(paid, dispute("needs_response"))
				require.NoError(f.t, f.Changes.Sync(f.t.Context(), f.Account, orderID(f.Account, orderKey)))
			},
			func(f *fixture) { require.NoError(f.t, f.Stripe.UpdateDispute(f.Stripe.Disputes()[0].ID, "lost")) },
			"paid 0, lost", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.age+time.Hour, 1)
			f.do(test.setup)
			f.ageBy(test.age)
			f.do(test.act)
			f.age()
			for _, fix := range []bool{false, true} {
				f.forget()
				require.Equal(t, test.found, inWords(f.reconcile(fix)))
				require.Equal(t, test.state, f.state())
				require.Zero(t, f.staged())
				for _, call := range []string{createIntent, confirm, cancel, makeRefund} {
					require.Zero(t, f.calls()[call], "no money is moved")
				}
			}
			if !regexp.MustCompile("pending|review").MatchString(test.state) {
				require.Equal(t, 1, f.calls()[listRefunds], "what is final is not read again")
			}
		})
	}
}

// state returns the states of the order, of its refunds and of its dispute.
func (f *fixture) state() (state string) {
	f.t.Helper()
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), `
SELECT concat_ws(', ', o.status || ' ' || amount_refunded,
                 (SELECT string_agg(amount || ' ' || status, ', ' ORDER BY amount, status) FROM refunds),
                 disputes->0->>'status')
  FROM orders AS o`).Scan(&state))
	return state
}

// A refund that is in progress is neither missing nor read again.
func TestRun_recentRefund(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]step{
		"not found": func(f *fixture) {
			f.do(paidAndRefunded(visa), sql("UPDATE refunds SET provider_refund_id = 're_UNKNOWN'"))
		},
		"not recorded":        func(f *fixture) { f.do(paid, dashboardRefund) },
		"with another status": func(f *fixture) { f.do(paidAndRefunded(pendingRefund)); f.settle(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 0, 1)
			f.do(setup)
			before := f.state()
			require.Empty(t, f.reconcile(true).Discrepancies)
			require.Equal(t, before, f.state())
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
			f, first := newVeryOldFixture(t, paidAndRefunded(visa), sql(test.setup))
			require.Equal(t, []string{kind + ": "}, inWords(first))
			for _, fix := range []bool{true, false} {
				next := f.reconcile(fix)
				require.Equal(t, []string{kind + ": "}, inWords(next))
				require.Equal(t, first.Discrepancies[0].ID, next.Discrepancies[0].ID)
				require.Equal(t, first.Discrepancies[0].FoundAt, next.Discrepancies[0].FoundAt)
			}
			f.exec(test.remedy)
			require.Empty(t, f.reconcile(true).Discrepancies)
		})
	}
}

// While the shop is closed after lost rows, only what differs is read. The nightly comparison also reads a refund
// that is not final.
func TestRun_lostRowsReadsDifferences(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0, 1)
	f.do(paidAndRefunded(pendingRefund))
	f.exec("UPDATE refunds SET created_at = created_at - interval '1 day'")
	readAt := func() (at time.Time) {
		require.NoError(t, f.Pool.QueryRow(t.Context(), "SELECT coalesce(provider_read_at, created_at) FROM orders").Scan(&at))
		return at
	}
	before := readAt()
	for _, lostRows := range []bool{true, false} {
		report, err := f.run(func(o *reconcile.Options) { o.LostRows = lostRows })
		require.NoError(t, err)
		require.Empty(t, report.Discrepancies)
		require.Equal(t, lostRows, readAt().Equal(before))
	}
}

// A read that fails is reported, and the worker tries it again.
func TestRun_readFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour, 4)
	f.do(paidAndRefunded(visa), dashboardRefund)
	f.age()
	failing := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.AccountNotReady, Endpoint: listDisputes, OrderID: orderID(f.Account, orderKey).String(), Times: stripetest.Always})
	report := f.reconcile(true)
	require.Len(t, report.Discrepancies, 1)
	require.Contains(t, inWords(report)[0], "provider_change:  => not fixed: list the disputes of ID: payments: not_executed, status 400")
	require.Equal(t, 1, report.Open())
	require.Equal(t, 1, f.staged())
	failing.Release()
	f.exec("UPDATE staged_jobs SET run_at = now() WHERE kind = 'provider_change'")
	require.Empty(t, f.reconcile(true).Discrepancies)
	require.Zero(t, f.staged())
}

// orders reconcile prints nothing that a client sent.
func TestReport_json(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(visa))
	f.exec("UPDATE refunds SET amount = 1700")
	f.insertIntent("metadata[account_id]", uuid.NewString())
	f.age()
	report, err := f.run(func(c *reconcile.Options) { c.LostRows, c.Fix = true, true })
	require.NoError(t, err)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	text = anyTime.ReplaceAll(anyID.ReplaceAll(text, []byte("ID")), []byte("TIME"))
	require.JSONEq(t, `{
		"since": "TIME",
		"until": "TIME",
		"intents": 2,
		"foreign_intents": 0,
		"refunds": 1,
		"discrepancies": [{
			"id": "ID",
			"found_at": "TIME",
			"kind": "orphaned_intent",
			"account_id": "ID",
			"order_id": "ID",
			"key_id": "ID",
			"intent_id": "ID",
			"provider": {"amount": 4300, "currency": "usd"},
			"created": "TIME",
			"detail": "intent requires_confirmation, order missing, unknown account",
			"fixed": false,
			"fix_error": "the account is unknown, so the intent may belong to another database"
		}, {
			"id": "ID",
			"found_at": "TIME",
			"kind": "refund_differs",
			"account_id": "ID",
			"order_id": "ID",
			"refund_id": "ID",
			"intent_id": "ID",
			"provider_refund_id": "ID",
			"local": {"amount": 1700, "currency": "usd"},
			"provider": {"amount": 1800, "currency": "usd"},
			"read_at": "TIME",
			"fixed": false
		}]
	}`, string(text))
}

// The statements of the runbook end an orphaned record, and change no balance.
func TestRunbook_orphanedRecord(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	entry := regexp.MustCompile("(?m)^- `orphaned_record`: .*$").FindString(string(page))
	for table, setup := range map[string]step{
		"orders":  stopBefore(confirm),
		"refunds": func(f *fixture) { f.do(paid, failing(stripetest.RateLimit, makeRefund, (*fixture).refund)) },
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			f := newOldFixture(t, setup, sql("DELETE FROM idempotency_keys WHERE finished_at IS NULL"))
			f.age()
			require.Len(t, f.reconcile(true).Discrepancies, map[string]int{"orders": 2, "refunds": 1}[table], "--fix cancels the intent")
			statement := regexp.MustCompile("`(UPDATE " + table + " SET [^`]+)`").FindStringSubmatch(entry)
			require.NotEmpty(t, statement, "the runbook has no statement for %s", table)
			f.exec(strings.ReplaceAll(statement[1], "'…'", "(SELECT id FROM "+table+")"))
			require.Empty(t, f.reconcile(true).Discrepancies)
			require.Zero(t, f.amountRefunded())
		})
	}
}

func (f *fixture) amountRefunded() (amount int64) {
	f.t.Helper()
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), "SELECT amount_refunded FROM orders").Scan(&amount))
	return amount
}

func TestRun_staysFound_refundOfLostOrder(t *testing.T) {
	t.Parallel()
	requireStaysFound(t, "unrecorded_refund: refund succeeded, payment not recorded",
		paidAndRefunded(visa), sql("DELETE FROM refunds", "DELETE FROM idempotency_keys"), loseOrder)
}
