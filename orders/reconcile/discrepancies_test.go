package reconcile_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// discrepancyCase is a situation and the discrepancies in it: want without Fix,
// fixed with it, and left at the next run.
type discrepancyCase struct {
	setup     func(*fixture)
	want      []string
	fixed     []string // nil: as want
	cancelled int      // intents
	left      []string // nil: as want
}

func discrepancyCases() map[string]discrepancyCase {
	paid := func(then func(*fixture)) func(*fixture) {
		return func(f *fixture) {
			require.Equal(f.t, http.StatusCreated, f.create(visa))
			then(f)
		}
	}
	declined := func(then func(*fixture)) func(*fixture) {
		return func(f *fixture) {
			require.Equal(f.t, http.StatusPaymentRequired, f.create(declinedCard))
			then(f)
		}
	}
	interrupted := func(endpoint string, then func(*fixture)) func(*fixture) {
		return func(f *fixture) {
			f.interrupt(endpoint)
			then(f)
		}
	}
	refunded := func(card string, then func(*fixture)) func(*fixture) {
		return func(f *fixture) {
			require.Equal(f.t, http.StatusCreated, f.create(card))
			require.Equal(f.t, http.StatusCreated, f.refund())
			then(f)
		}
	}
	sql := func(statements ...string) func(*fixture) {
		return func(f *fixture) {
			for _, statement := range statements {
				f.exec(statement)
			}
		}
	}
	nothing := func(*fixture) {}
	lost := func(f *fixture) { f.deleteOrder(f.account, orderKey) }
	none := []string{}
	const finish = `UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = last_run_at, response_code = 201, response_headers = '{}', response_body = ''`
	const asPaid = `UPDATE orders SET status = 'paid', paid_at = created_at`
	const asFailed = `UPDATE orders SET status = 'payment_failed', paid_at = NULL, failure_code = 'card_declined'`
	return map[string]discrepancyCase{
		"both sides agree": {setup: refunded(visa, nothing), want: none},
		"a second charge of a paid order": {
			setup: paid(func(f *fixture) { f.insertCharge() }),
			want:  []string{"duplicate_charge: intent succeeded, order paid, recorded intent ID, response 201"},
		},
		"a lost order": {
			setup: paid(lost),
			want:  []string{"unrecorded_charge: intent succeeded, order missing"},
		},
		"a lost order with two charges": {
			setup: paid(func(f *fixture) {
				f.insertCharge()
				lost(f)
			}),
			want: []string{
				"unrecorded_charge: intent succeeded, order missing",
				"unrecorded_charge: intent succeeded, order missing",
			},
		},
		"an unknown account": {
			setup: func(f *fixture) {
				f.insertIntent("metadata[account_id]", uuid.NewString())
				f.insertCharge("metadata[account_id]", uuid.NewString())
			},
			want: none,
		},
		"charged after a decline": {
			setup: declined(func(f *fixture) { f.insertCharge() }),
			want:  []string{"unrecorded_charge: intent succeeded, order payment_failed, recorded intent ID, response 402"},
		},
		"charged, and recorded as failed": {
			setup: paid(sql(asFailed)),
			want:  []string{"unrecorded_charge: intent succeeded, order payment_failed, response 201"},
		},
		"charged, and the response says declined": {
			setup: paid(sql(`UPDATE idempotency_keys SET response_code = 402`)),
			want:  []string{"unrecorded_charge: intent succeeded, order paid, response 402"},
		},
		"charged on an intent that the key's next run will not use": {
			setup: interrupted(confirmEndpoint, func(f *fixture) { f.insertCharge() }),
			want: []string{
				"unrecorded_charge: intent succeeded, order pending, recorded intent ID, key unfinished",
				stuckAt("charge_created"),
			},
		},
		"recorded as paid, and not confirmed": {
			setup: interrupted(confirmEndpoint, sql(finish, asPaid)),
			want:  []string{"missing_at_provider: intent requires_confirmation, order paid, response 201"},
		},
		"the recorded intent does not exist": {
			setup: paid(sql(`UPDATE orders SET payment_intent_id = 'pi_UNKNOWN'`)),
			want: []string{
				"duplicate_charge: intent succeeded, order paid, recorded intent ID, response 201",
				"missing_at_provider: intent missing, order paid, response 201",
			},
		},
		"the recorded intent is of another order": {
			setup: paid(func(f *fixture) {
				other := f.insertCharge("metadata[order_id]", uuid.NewString())
				f.exec("UPDATE orders SET payment_intent_id = $1", other)
			}),
			want: []string{
				"duplicate_charge: intent succeeded, order paid, recorded intent ID, response 201",
				"unrecorded_charge: intent succeeded, order missing",
				"missing_at_provider: intent succeeded of another order, order paid, response 201",
			},
		},
		"another amount": {
			setup: paid(sql(`UPDATE orders SET amount = amount + 1`)),
			want:  []string{"amount_mismatch: intent succeeded, order paid, response 201"},
		},
		"another currency": {
			setup: paid(sql(`UPDATE orders SET currency = 'eur'`)),
			want:  []string{"amount_mismatch: intent succeeded, order paid, response 201"},
		},
		"processing after a decline": {
			setup: declined(func(f *fixture) { f.insertCharge("payment_method", stripetest.ProcessingCard) }),
			want:  []string{"open_intent: intent processing, order payment_failed, recorded intent ID, response 402"},
		},
		"waiting for the customer, and the order lost": {
			setup: func(f *fixture) {
				f.insertIntent("payment_method", "pm_card_authenticationRequired", "confirm", "true")
			},
			want: []string{"open_intent: intent requires_action, order missing"},
		},
		"a pending order without a key": {
			setup: interrupted(confirmEndpoint, sql(`DELETE FROM idempotency_keys`)),
			want: []string{
				"orphaned_record: order pending",
				"orphaned_intent: intent requires_confirmation, order pending",
			},
			fixed: []string{
				"orphaned_record: order pending",
				"orphaned_intent: intent requires_confirmation, order pending => fixed",
			},
			cancelled: 1,
			left:      []string{"orphaned_record: order pending"},
		},
		"a key that needs review": {
			setup: interrupted(confirmEndpoint, sql(`UPDATE idempotency_keys SET needs_review_at = last_run_at`)),
			want:  []string{"key_needs_review" + stuckAt("charge_created")[len("key_stuck"):]},
		},
		"a key stuck before the intent": {
			setup: interrupted(createEndpoint, nothing),
			want:  []string{stuckAt("order_created")},
		},
		"a key stuck after the intent, for a year": {
			setup: interrupted(confirmEndpoint, sql(
				`UPDATE idempotency_keys SET created_at = created_at - interval '1 year', last_run_at = last_run_at - interval '1 year'`,
				`UPDATE orders SET created_at = created_at - interval '1 year'`)),
			want: []string{stuckAt("charge_created")},
		},
		"a key stuck in a refund": {
			setup: paid(func(f *fixture) {
				limit := f.stripe.Inject(stripetest.Rule{Fault: stripetest.RateLimit, Endpoint: refundEndpoint, Times: stripetest.Always})
				require.Zero(f.t, f.refund())
				limit.Release()
			}),
			want: []string{"key_stuck: create_refund at refund_created" + stuckAt("")[len("key_stuck: create_order at "):]},
		},
		"an intent that the key's next run will use": {
			setup: func(f *fixture) {
				unanswered := f.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: createEndpoint, Times: stripetest.Always})
				require.Zero(f.t, f.create(visa))
				unanswered.Release()
			},
			want: []string{"key_stuck: create_order at order_created after 1 runs, the last at TIME: the payment provider is unavailable: payments: unknown: no response: EOF"},
		},
		"two orphaned intents of a paid order": {
			setup: paid(func(f *fixture) {
				f.insertIntent()
				f.insertIntent("payment_method", "")
			}),
			want: []string{
				"orphaned_intent: intent requires_payment_method, order paid, recorded intent ID, response 201",
				"orphaned_intent: intent requires_confirmation, order paid, recorded intent ID, response 201",
			},
			fixed: []string{
				"orphaned_intent: intent requires_payment_method, order paid, recorded intent ID, response 201 => fixed",
				"orphaned_intent: intent requires_confirmation, order paid, recorded intent ID, response 201 => fixed",
			},
			cancelled: 2,
			left:      none,
		},
		"an orphaned intent of a lost order": {
			setup:     interrupted(confirmEndpoint, lost),
			want:      []string{"orphaned_intent: intent requires_confirmation, order missing"},
			fixed:     []string{"orphaned_intent: intent requires_confirmation, order missing => fixed"},
			cancelled: 1,
			left:      none,
		},
		"an orphaned intent of a failed order": {
			setup:     interrupted(confirmEndpoint, sql(finish, asFailed)),
			want:      []string{"orphaned_intent: intent requires_confirmation, order payment_failed, response 201"},
			fixed:     []string{"orphaned_intent: intent requires_confirmation, order payment_failed, response 201 => fixed"},
			cancelled: 1,
			left:      none,
		},
		"an orphaned intent beside an unfinished key": {
			setup: interrupted(confirmEndpoint, func(f *fixture) { f.insertIntent() }),
			want: []string{
				stuckAt("charge_created"),
				"orphaned_intent: intent requires_confirmation, order pending, recorded intent ID, key unfinished",
			},
			fixed: []string{
				stuckAt("charge_created"),
				"orphaned_intent: intent requires_confirmation, order pending, recorded intent ID, key unfinished => fixed",
			},
			cancelled: 1,
			left:      []string{stuckAt("charge_created")},
		},

		"a pending refund": {setup: refunded(pendingRefund, nothing), want: none},
		"refunded at the dashboard": {
			setup: refunded(visa, func(f *fixture) { f.insertRefund() }),
			want:  []string{"unrecorded_refund: refund succeeded, our refund missing"},
		},
		"refunded at the dashboard, which failed": {
			setup: refunded(pendingRefund, func(f *fixture) {
				require.NoError(f.t, f.stripe.Settle(f.insertRefund(), false))
			}),
			want: none,
		},
		"a foreign payment refunded": {
			setup: paid(func(f *fixture) {
				foreign := f.insertForeignIntent("payment_method", visa, "confirm", "true",
					"automatic_payment_methods[enabled]", "true", "automatic_payment_methods[allow_redirects]", "never")
				f.insertRefund("payment_intent", foreign)
			}),
			want: none,
		},
		"refunded twice": {
			setup: refunded(visa, func(f *fixture) {
				f.insertRefund("amount", "1800",
					"metadata[account_id]", f.account.String(),
					"metadata[order_id]", orderID(f.account, orderKey).String(),
					"metadata[refund_id]", idempotency.DeriveID("refund", f.account, refundKey).String(),
					"metadata[idempotency_key_id]", idempotency.KeyID(f.account, refundKey).String())
			}),
			want: []string{"unrecorded_refund: refund succeeded, our refund succeeded, recorded refund ID, response 201"},
		},
		"a lost refund": {
			setup: refunded(visa, sql("DELETE FROM refunds", "DELETE FROM idempotency_keys WHERE operation = 'create_refund'",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'")),
			want: []string{"unrecorded_refund: refund succeeded, our refund missing"},
		},
		"refunded, and recorded as failed": {
			setup: refunded(visa, sql("UPDATE refunds SET status = 'failed', provider_refund_id = NULL",
				"UPDATE orders SET amount_refunded = 0, status = 'paid'")),
			want: []string{"unrecorded_refund: refund succeeded, our refund failed, response 201"},
		},
		"the recorded refund does not exist": {
			setup: refunded(visa, sql("UPDATE refunds SET provider_refund_id = 're_UNKNOWN'")),
			want: []string{
				"missing_at_provider: refund missing, our refund succeeded, response 201",
				"unrecorded_refund: refund succeeded, our refund succeeded, recorded refund ID, response 201",
			},
		},
		"a pending refund without a key": {
			setup: refunded(visa, sql("UPDATE refunds SET provider_refund_id = NULL, status = 'pending', id = gen_random_uuid()")),
			want: []string{
				"unrecorded_refund: refund succeeded, our refund missing",
				"orphaned_record: our refund pending, response 201",
			},
		},
		"another amount of a refund": {
			setup: refunded(visa, sql("UPDATE refunds SET amount = 1700")),
			want:  []string{"amount_mismatch: refund succeeded, our refund succeeded, response 201"},
		},
		"a refund that succeeded without an event": {
			setup: refunded(pendingRefund, func(f *fixture) { f.settle(true) }),
			want:  []string{"refund_status_changed: refund succeeded, our refund pending, response 201"},
			fixed: []string{"refund_status_changed: refund succeeded, our refund pending, response 201 => fixed"},
			left:  none,
		},
		"a refund that failed without an event": {
			setup: refunded(refundFail, func(f *fixture) { f.settle(false) }),
			want:  []string{"refund_status_changed: refund failed, our refund succeeded, response 201"},
			fixed: []string{"refund_status_changed: refund failed, our refund succeeded, response 201 => fixed"},
			left:  none,
		},
	}
}

// stuckAt is the discrepancy of a key whose provider rejected all requests.
func stuckAt(point string) string {
	return "key_stuck: create_order at " + point + " after 1 runs, the last at TIME: the payment provider is unavailable: " +
		"payments: not executed, status 429, type invalid_request_error, code rate_limit, request ID"
}

func TestRun_discrepancies(t *testing.T) {
	t.Parallel()
	for name, test := range discrepancyCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.fixed == nil {
				test.fixed = test.want
			}
			if test.left == nil {
				test.left = test.want
			}
			f := newOldFixture(t)
			test.setup(f)
			f.age()

			before := f.rows()
			f.forget()
			require.Equal(t, test.want, f.discrepancies())
			require.Equal(t, before, f.rows(), "without Fix nothing is changed here")
			require.NotContains(t, f.calls(), cancelEndpoint, "nor at the provider")

			report := f.reconcile(true)
			require.Equal(t, test.fixed, inWords(report))
			require.Equal(t, len(test.left), report.Open())
			calls := f.calls()
			require.Equal(t, test.cancelled, calls[cancelEndpoint])
			for _, endpoint := range []string{createEndpoint, confirmEndpoint, refundEndpoint} {
				require.Zero(t, calls[endpoint], "a fix moves no money")
			}
			f.age()
			require.ElementsMatch(t, test.left, f.discrepancies())
		})
	}
}

// Recent activity may be in progress, in our records or at the provider.
func TestRun_recent(t *testing.T) {
	t.Parallel()
	cases := discrepancyCases()
	for _, name := range []string{
		"a lost order", "another amount", "a pending order without a key", "an orphaned intent of a lost order",
		"the recorded refund does not exist", "a refund that succeeded without an event",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 0, 1)
			cases[name].setup(f)
			require.Empty(t, f.reconcile(true).Discrepancies)
		})
	}
	t.Run("our record alone", func(t *testing.T) {
		t.Parallel()
		f := newOldFixture(t)
		cases["another amount"].setup(f)
		require.Empty(t, f.reconcile(true).Discrepancies)
	})
}
