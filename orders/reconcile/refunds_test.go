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
	"example.com/orders-api/orders/orderstest"
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

func TestRun_refunds(t *testing.T) {
	t.Parallel()
	testDiscrepancies(t, refundCases())
}

func TestRun_recentRefund(t *testing.T) {
	t.Parallel()
	testRecent(t, refundCases(), "the recorded refund does not exist", "a refund that succeeded without an event")
}

func refundCases() map[string]discrepancyCase {
	return map[string]discrepancyCase{
		"a key stuck in a refund": {setup: []step{paid, failing(stripetest.RateLimit, makeRefund, (*fixture).refund)}},
		"a pending refund":        {setup: []step{paidAndRefunded(pendingRefund)}},
		"refunded at the dashboard": {
			setup: []step{paidAndRefunded(visa), dashboardRefund},
			want:  []string{"unrecorded_refund: refund succeeded, our refund missing"},
		},
		"refunded at the dashboard, which failed": {
			setup: []step{paidAndRefunded(pendingRefund), func(f *fixture) {
				require.NoError(f.t, f.Stripe.Settle(f.insertRefund(), false))
			}},
			want: []string{"unrecorded_refund: refund failed, our refund missing"},
		},
		"a foreign payment refunded": {
			setup: []step{paid, func(f *fixture) {
				foreign := f.insertForeignIntent("payment_method", visa, "confirm", "true",
					"automatic_payment_methods[enabled]", "true", "automatic_payment_methods[allow_redirects]", "never")
				f.insertRefund("payment_intent", foreign)
			}},
		},
		"refunded twice": {
			setup: []step{paidAndRefunded(visa), func(f *fixture) {
				f.insertRefund("amount", "1800",
					"metadata[account_id]", f.Account.String(),
					"metadata[order_id]", orderID(f.Account, orderKey).String(),
					"metadata[refund_id]", idempotency.DeriveID("refund", f.Account, refundKey).String(),
					"metadata[idempotency_key_id]", idempotency.KeyID(f.Account, refundKey).String())
			}},
			want: []string{"unrecorded_refund: refund succeeded, our refund succeeded"},
		},
		"a lost refund": {
			setup: []step{paidAndRefunded(visa), sql("DELETE FROM refunds", "DELETE FROM idempotency_keys WHERE operation = 'create_refund'",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'")},
			want: []string{"unrecorded_refund: refund succeeded, our refund missing"},
		},
		"refunded, and recorded as failed": {
			setup: []step{paidAndRefunded(visa), sql("UPDATE refunds SET status = 'failed', provider_refund_id = NULL",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'")},
			want:  []string{"unrecorded_refund: refund succeeded, our refund failed"},
			found: []string{"refund_made_after_failure: "},
		},
		"the recorded refund does not exist": {
			setup: []step{paidAndRefunded(visa), sql("UPDATE refunds SET provider_refund_id = 're_UNKNOWN'")},
			want:  []string{"unrecorded_refund: refund succeeded, our refund succeeded"},
			found: []string{"missing_at_provider: "},
		},
		"a pending refund without a key": {
			setup: []step{paidAndRefunded(visa), sql("UPDATE refunds SET provider_refund_id = NULL, status = 'pending', id = '" + uuid.NewString() + "'")},
			want:  []string{"unrecorded_refund: refund succeeded, our refund missing"},
			found: []string{"orphaned_record: "},
		},
		"a refund that succeeded without an event": {
			setup: []step{paidAndRefunded(pendingRefund), func(f *fixture) { f.settle(true) }},
			want:  []string{"refund_status_changed: refund succeeded, our refund pending"},
		},
		"a refund that failed without an event": {
			setup: []step{paidAndRefunded(refundFail), func(f *fixture) { f.settle(false) }},
			want:  []string{"refund_status_changed: refund failed, our refund succeeded"},
			found: []string{"refund_failed_late: expired_or_canceled_card"},
		},
	}
}

// What a read has found about our refund stays open until another read does not find it.
func TestRun_absentRefund(t *testing.T) {
	t.Parallel()
	for kind, test := range map[string]struct{ setup, ours, remedy string }{
		"missing_at_provider": {
			"UPDATE refunds SET provider_refund_id = 're_UNKNOWN'", "succeeded", "DELETE FROM refunds WHERE provider_refund_id = 're_UNKNOWN'",
		},
		"orphaned_record": {
			"UPDATE refunds SET provider_refund_id = NULL, status = 'pending', id = '" + uuid.NewString() + "'",
			"missing",
			"UPDATE refunds SET status = 'failed', failure_reason = 'canceled' WHERE provider_refund_id IS NULL",
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f, _ := newVeryOldFixture(t, paidAndRefunded(visa), sql(test.setup))
			first, err := f.run(func(c *reconcile.Options) { c.Since, c.Fix = 14*24*time.Hour, true })
			require.NoError(t, err)
			require.Equal(t, []string{"unrecorded_refund: refund succeeded, our refund " + test.ours + " => fixed", kind + ": "}, inWords(first))
			for _, fix := range []bool{true, false, true} {
				next := f.reconcile(fix)
				require.Equal(t, []string{kind + ": "}, inWords(next))
				require.Equal(t, first.Discrepancies[1].ID, next.Discrepancies[0].ID)
				require.Equal(t, first.Discrepancies[1].FoundAt, next.Discrepancies[0].FoundAt)
			}
			f.exec(test.remedy)
			require.Empty(t, f.reconcile(true).Discrepancies)
		})
	}
}

// What no event has reported is recorded, however old the order is.
func TestRun_readsAgain(t *testing.T) {
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
	for name, test := range map[string]struct {
		setup, act step
		want       string
		reported   []string
	}{
		"a refund of last month's order": {
			paid, dashboardRefund, "partially_refunded 7 succeeded ", []string{"unrecorded_refund: refund succeeded, our refund missing => fixed"},
		},
		"a pending refund of last month": {
			paidAndRefunded(pendingRefund), func(f *fixture) { f.settle(false) }, "paid 0 failed ", []string{"refund_failed_late: expired_or_canceled_card"},
		},
		"a dispute": {paid, dispute("needs_response", "under_review"), "paid 0  under_review", nil},
		"a decided dispute of last month": {
			func(f *fixture) {
				f.do(paid, dispute("needs_response"))
				require.NoError(f.t, f.Changes.Sync(f.t.Context(), f.Account, orderID(f.Account, orderKey)))
			},
			func(f *fixture) { require.NoError(f.t, f.Stripe.UpdateDispute(f.Stripe.Disputes()[0].ID, "lost")) },
			"paid 0  lost", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, month+time.Hour, 1)
			f.do(test.setup)
			f.ageBy(month)
			f.do(test.act)
			f.age()
			before := f.rows()
			f.reconcile(false)
			require.Equal(t, before, f.rows())
			require.Equal(t, 1, f.staged(), "for the worker, even if no later run reaches as far back")
			require.Equal(t, test.reported, inWords(f.reconcile(true)))
			var state string
			require.NoError(t, f.Pool.QueryRow(t.Context(), `
SELECT o.status || ' ' || amount_refunded || ' ' || coalesce((SELECT status FROM refunds), '') || ' ' || coalesce(disputes->0->>'status', '')
  FROM orders AS o`).Scan(&state))
			require.Equal(t, test.want, state)
			require.Zero(t, f.staged())

			f.forget()
			f.reconcile(true)
			require.NotContains(t, f.calls(), "GET /v1/refunds/{id}")
			require.LessOrEqual(t, f.calls()[listRefunds], 2, "what is final is not read again")
		})
	}
}

func (f *fixture) staged() (n int) {
	f.t.Helper()
	require.NoError(f.t, f.Pool.QueryRow(f.t.Context(), "SELECT count(*) FROM staged_jobs WHERE kind = 'provider_change'").Scan(&n))
	return n
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
	require.Contains(t, inWords(report)[0], "unrecorded_refund: refund succeeded, our refund missing => not fixed: list the disputes of ID: payments: not_executed, status 400")
	require.Equal(t, 1, report.Open())
	require.Equal(t, 1, f.staged())
	failing.Release()
	f.exec("UPDATE staged_jobs SET run_at = now() WHERE kind = 'provider_change'")
	require.Empty(t, f.reconcile(true).Discrepancies)
	require.Zero(t, f.staged())
}

func TestRun_refundStatusChangesMeanwhile(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paidAndRefunded(pendingRefund))
	f.age()
	f.transport.after = map[string]func(){listRefunds: func() {
		f.settle(true)
		payload, signature, err := f.Stripe.Event(orderstest.WebhookSecret, "refund.updated", f.Stripe.Refunds()[0].ID)
		require.NoError(t, err)
		event, err := f.Changes.Verify(payload, signature)
		require.NoError(t, err)
		_, err = f.Changes.Handle(t.Context(), event)
		require.NoError(t, err)
	}}
	require.Empty(t, f.discrepancies())
	require.Equal(t, 1, f.reconcile(false).Refunds)
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
		"unknown_intents": 1,
		"refunds": 1,
		"discrepancies": [{
			"kind": "amount_mismatch",
			"account_id": "ID",
			"order_id": "ID",
			"refund_id": "ID",
			"intent_id": "ID",
			"provider_refund_id": "ID",
			"local": {"amount": 1700, "currency": "usd"},
			"provider": {"amount": 1800, "currency": "usd"},
			"created": "TIME",
			"detail": "refund succeeded, our refund succeeded",
			"fixed": true
		}, {
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
