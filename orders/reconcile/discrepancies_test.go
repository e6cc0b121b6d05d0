package reconcile_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

type discrepancyCase struct {
	setup []step
	want  []string
}

func paid(f *fixture) { require.Equal(f.t, http.StatusCreated, f.create(visa)) }

func declined(f *fixture) { require.Equal(f.t, http.StatusPaymentRequired, f.create(declinedCard)) }

func challengeDeclined(f *fixture) {
	require.Zero(f.t, f.create(challengeCard))
	require.NoError(f.t, f.Stripe.Authenticate(f.intentID(), false))
}

func createOrder(f *fixture) (status int) { return f.create(visa) }

func failing(kind stripetest.Fault, call string, send func(*fixture) (status int)) step {
	return func(f *fixture) {
		fault := f.Stripe.Inject(stripetest.Rule{Fault: kind, Endpoint: call, Times: stripetest.Always})
		require.Zero(f.t, send(f))
		fault.Release()
	}
}

func stopBefore(call string) step { return failing(stripetest.RateLimit, call, createOrder) }

func sql(statements ...string) step {
	return func(f *fixture) {
		for _, statement := range statements {
			f.exec(statement)
		}
	}
}

func charge(changes ...string) step {
	return func(f *fixture) { f.insertCharge(changes...) }
}

func intent(changes ...string) step {
	return func(f *fixture) { f.insertIntent(changes...) }
}

func loseOrder(f *fixture) { f.deleteOrder(f.Account, orderKey) }

const (
	finishKey = `UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = updated_at, response_code = 201, response_headers = '{}', response_body = ''`
	markPaid  = `UPDATE orders SET status = 'paid', paid_at = created_at`
)

func discrepancyCases() map[string]discrepancyCase {
	const asFailed = `UPDATE orders SET status = 'payment_failed', paid_at = NULL, failure_code = 'card_declined'`
	return map[string]discrepancyCase{
		"both sides agree":              {setup: []step{paid}},
		"both sides agree on a decline": {setup: []step{declined}},
		"a lost order whose card was declined": {
			setup: []step{declined, loseOrder},
			want:  []string{"orphaned_intent: intent declined, order missing"},
		},
		"a declined challenge of an unfinished order": {setup: []step{challengeDeclined}},
		"a second charge of a paid order": {
			setup: []step{paid, charge()},
			want:  []string{"duplicate_charge: intent succeeded, order paid, response 201"},
		},
		"a lost order": {setup: []step{paid, loseOrder}, want: []string{"unrecorded_charge: intent succeeded, order missing"}},
		"charged after a decline": {
			setup: []step{declined, charge()},
			want:  []string{"unrecorded_charge: intent succeeded, order payment_failed, response 402"},
		},
		"charged, and recorded as failed": {
			setup: []step{paid, sql(asFailed)},
			want:  []string{"unrecorded_charge: intent succeeded, order payment_failed, response 201"},
		},
		"charged, and the response says declined": {
			setup: []step{paid, sql(`UPDATE idempotency_keys SET response_code = 402`)},
			want:  []string{"unrecorded_charge: intent succeeded, order paid, response 402"},
		},
		"charged on an intent that the key's next run will not use": {
			setup: []step{stopBefore(confirm), charge()},
			want:  []string{"unrecorded_charge: intent succeeded, order pending"},
		},
		"recorded as paid, and not confirmed": {
			setup: []step{stopBefore(confirm), sql(finishKey, markPaid)},
			want:  []string{"missing_at_provider: intent requires_confirmation, order paid, response 201"},
		},
		"the recorded intent does not exist": {
			setup: []step{paid, sql(`UPDATE orders SET payment_intent_id = 'pi_UNKNOWN'`)},
			want: []string{
				"duplicate_charge: intent succeeded, order paid, response 201",
				"missing_at_provider: intent missing, order paid, response 201",
			},
		},
		"the recorded intent is of another order": {
			setup: []step{paid, func(f *fixture) {
				other := f.insertCharge("metadata[order_id]", uuid.NewString())
				f.exec("UPDATE orders SET payment_intent_id = $1", other)
			}},
			want: []string{
				"duplicate_charge: intent succeeded, order paid, response 201",
				"unrecorded_charge: intent succeeded, order missing",
				"missing_at_provider: intent succeeded of another order, order paid, response 201",
			},
		},
		"another amount": {
			setup: []step{paid, sql(`UPDATE orders SET amount = amount + 1`)},
			want:  []string{"amount_mismatch: intent succeeded, order paid, response 201"},
		},
		"processing after a decline": {
			setup: []step{declined, charge("payment_method", stripetest.ProcessingCard)},
			want:  []string{"open_intent: intent processing, order payment_failed, response 402"},
		},
		"waiting for the customer, and the order lost": {
			setup: []step{intent("payment_method", "pm_card_authenticationRequired", "confirm", "true")},
			want:  []string{"orphaned_intent: intent requires_action, order missing"},
		},
		"a pending order without a key": {
			setup: []step{stopBefore(confirm), sql(`DELETE FROM idempotency_keys`)},
			want: []string{
				"orphaned_record: order pending",
				"orphaned_intent: intent requires_confirmation, order pending",
			},
		},
		"a key stuck before the intent":              {setup: []step{stopBefore(createIntent)}},
		"an intent that the key's next run will use": {setup: []step{failing(stripetest.CloseAfter, createIntent, createOrder)}},
		"two orphaned intents of a paid order": {
			setup: []step{paid, intent(), intent("payment_method", "")},
			want: []string{
				"orphaned_intent: intent requires_payment_method, order paid, response 201",
				"orphaned_intent: intent requires_confirmation, order paid, response 201",
			},
		},
		"an orphaned intent of a lost order": {
			setup: []step{stopBefore(confirm), loseOrder},
			want:  []string{"orphaned_intent: intent requires_confirmation, order missing"},
		},
		"an orphaned intent beside an unfinished key": {
			setup: []step{stopBefore(confirm), intent()},
			want:  []string{"orphaned_intent: intent requires_confirmation, order pending"},
		},
	}
}

// Fix cancels orphaned intents, and nothing else.
func TestRun_discrepancies(t *testing.T) {
	t.Parallel()
	for name, test := range discrepancyCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fixed, left []string
			cancelled := 0
			for _, d := range test.want {
				if strings.HasPrefix(d, string(reconcile.OrphanedIntent)) {
					cancelled++
					fixed = append(fixed, d+" => fixed")
				} else {
					fixed, left = append(fixed, d), append(left, d)
				}
			}
			f := newOldFixture(t, test.setup...)
			f.age()

			before := f.rows()
			f.forget()
			require.ElementsMatch(t, test.want, f.discrepancies())
			require.Equal(t, before, f.rows(), "without Fix nothing is changed here")
			require.NotContains(t, f.calls(), cancel, "nor at the provider")

			report := f.reconcile(true)
			require.ElementsMatch(t, fixed, inWords(report))
			require.Equal(t, len(left), report.Open())
			calls := f.calls()
			require.Equal(t, cancelled, calls[cancel])
			for _, call := range []string{createIntent, confirm, makeRefund} {
				require.Zero(t, calls[call], "a fix moves no money")
			}
			f.age()
			require.ElementsMatch(t, left, f.discrepancies())
		})
	}
}

func TestRun_recent(t *testing.T) {
	t.Parallel()
	cases := discrepancyCases()
	for _, name := range []string{"a lost order", "another amount", "a pending order without a key", "an orphaned intent of a lost order"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 0, 1)
			f.do(cases[name].setup...)
			require.Empty(t, f.reconcile(true).Discrepancies)
		})
	}
	t.Run("our record alone", func(t *testing.T) {
		t.Parallel()
		f := newOldFixture(t, cases["another amount"].setup...)
		require.Empty(t, f.reconcile(true).Discrepancies)
	})
	t.Run("not in the future", func(t *testing.T) { // a clock ran ahead, so no run is active
		t.Parallel()
		f := newOldFixture(t, cases["another amount"].setup...)
		f.age()
		f.do(sql(`UPDATE orders SET created_at = created_at + interval '1 day'`),
			sql(`UPDATE idempotency_keys SET created_at = created_at + interval '1 day', updated_at = updated_at + interval '1 day', finished_at = finished_at + interval '1 day'`))
		require.Equal(t, cases["another amount"].want, f.discrepancies())
	})
}
