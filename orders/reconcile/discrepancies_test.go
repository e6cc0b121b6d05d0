package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

type discrepancyCase struct {
	setup []Step
	want  []string
}

var paid = CreatePaid(Visa)

func declined(f *Fixture) { f.Do(PayWith(DeclinedCard), Create("402 card_declined generic_decline")) }

func charge(changes ...string) Step {
	return func(f *Fixture) { insertCharge(f, changes...) }
}

func intent(changes ...string) Step {
	return func(f *Fixture) { f.InsertIntent(changes...) }
}

const (
	finishKey = `UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = updated_at, response_code = 201, response_headers = '{}', response_body = ''`
	markPaid  = `UPDATE orders SET status = 'paid', paid_at = created_at`
)

func discrepancyCases() map[string]discrepancyCase {
	const asFailed = `UPDATE orders SET status = 'payment_failed', paid_at = NULL, failure_code = 'card_declined'`
	return map[string]discrepancyCase{
		"both sides agree":              {setup: []Step{paid}},
		"both sides agree on a decline": {setup: []Step{declined}},
		"a lost order whose card was declined": {
			setup: []Step{declined, LoseRows},
			want:  []string{"orphaned_intent: intent declined, order missing"},
		},
		"a declined challenge of an unfinished order": {setup: []Step{Challenge, FailChallenge}},
		"a second charge of a paid order": {
			setup: []Step{paid, charge()},
			want:  []string{"duplicate_charge: intent succeeded, order paid, response 201"},
		},
		"a lost order": {setup: []Step{paid, LoseRows}, want: []string{"unrecorded_charge: intent succeeded, order missing"}},
		"charged after a decline": {
			setup: []Step{declined, charge()},
			want:  []string{"unrecorded_charge: intent succeeded, order payment_failed, response 402"},
		},
		"charged, and recorded as failed": {
			setup: []Step{paid, sql(asFailed)},
			want:  []string{"unrecorded_charge: intent succeeded, order payment_failed, response 201"},
		},
		"charged, and the response says declined": {
			setup: []Step{paid, sql(`UPDATE idempotency_keys SET response_code = 402`)},
			want:  []string{"unrecorded_charge: intent succeeded, order paid, response 402"},
		},
		"charged on an intent that the key's next run will not use": {
			setup: []Step{StopBefore(Confirm), charge()},
			want:  []string{"unrecorded_charge: intent succeeded, order pending"},
		},
		"recorded as paid, and not confirmed": {
			setup: []Step{StopBefore(Confirm), sql(finishKey, markPaid)},
			want:  []string{"missing_at_provider: intent requires_confirmation, order paid, response 201"},
		},
		"the recorded intent does not exist": {
			setup: []Step{paid, sql(`UPDATE orders SET payment_intent_id = 'pi_UNKNOWN'`)},
			want: []string{
				"duplicate_charge: intent succeeded, order paid, response 201",
				"missing_at_provider: intent missing, order paid, response 201",
			},
		},
		"the recorded intent is of another order": {
			setup: []Step{paid, func(f *Fixture) {
				other := insertCharge(f, "metadata[order_id]", uuid.NewString())
				f.Exec("UPDATE orders SET payment_intent_id = $1", other)
			}},
			want: []string{
				"duplicate_charge: intent succeeded, order paid, response 201",
				"unrecorded_charge: intent succeeded, order missing",
				"missing_at_provider: intent succeeded of another order, order paid, response 201",
			},
		},
		"another amount": {
			setup: []Step{paid, sql(`UPDATE orders SET amount = amount + 1`)},
			want:  []string{"amount_mismatch: intent succeeded, order paid, response 201"},
		},
		"charged with another amount, before its rows were lost": {
			setup: []Step{StopBefore(CreateIntent), charge("amount", "2600")},
			want:  []string{"unrecorded_charge: intent succeeded, order pending"},
		},
		"unconfirmed with another amount": {
			setup: []Step{StopBefore(CreateIntent), intent("amount", "2600")},
			want:  []string{"orphaned_intent: intent requires_confirmation, order pending"},
		},
		"processing after a decline": {
			setup: []Step{declined, charge("payment_method", stripetest.ProcessingCard)},
			want:  []string{"open_intent: intent processing, order payment_failed, response 402"},
		},
		"waiting for the customer, and the order lost": {
			setup: []Step{intent("payment_method", "pm_card_authenticationRequired", "confirm", "true")},
			want:  []string{"orphaned_intent: intent requires_action, order missing"},
		},
		"a pending order without a key": {
			setup: []Step{StopBefore(Confirm), sql(`DELETE FROM idempotency_keys`)},
			want: []string{
				"orphaned_record: order pending",
				"orphaned_intent: intent requires_confirmation, order pending",
			},
		},
		"a key stuck before the intent":              {setup: []Step{StopBefore(CreateIntent)}},
		"an intent that the key's next run will use": {setup: []Step{LoseResponse(CreateIntent), Create("503 unavailable, 1s")}},
		"two orphaned intents of a paid order": {
			setup: []Step{paid, intent(), intent("payment_method", "")},
			want: []string{
				"orphaned_intent: intent requires_payment_method, order paid, response 201",
				"orphaned_intent: intent requires_confirmation, order paid, response 201",
			},
		},
		"an orphaned intent of a lost order": {
			setup: []Step{StopBefore(Confirm), LoseRows},
			want:  []string{"orphaned_intent: intent requires_confirmation, order missing"},
		},
		"an orphaned intent beside an unfinished key": {
			setup: []Step{StopBefore(Confirm), intent()},
			want:  []string{"orphaned_intent: intent requires_confirmation, order pending"},
		},
	}
}

func rows(f *Fixture) []string {
	f.T.Helper()
	return f.Texts(`
SELECT o::text FROM orders o UNION ALL SELECT r::text FROM refunds r UNION ALL SELECT k::text FROM idempotency_keys k ORDER BY 1`)
}

func requireNoMoneyMoved(f *Fixture) {
	f.T.Helper()
	for _, call := range []string{"create", "confirm", "refund"} {
		require.Zero(f.T, f.Transport.Count(call), "a comparison moves no money")
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
			age(f)

			before := rows(f)
			f.Transport.Reset()
			require.ElementsMatch(t, test.want, discrepancies(f))
			require.Equal(t, before, rows(f), "without Fix nothing is changed here")
			require.Zero(t, f.Transport.Count("cancel"), "nor at the provider")

			report := runReconcile(f, true)
			require.ElementsMatch(t, fixed, inWords(report))
			require.Equal(t, len(left), report.Open())
			require.Equal(t, cancelled, f.Transport.Count("cancel"))
			requireNoMoneyMoved(f)
			age(f)
			require.ElementsMatch(t, left, discrepancies(f))
		})
	}
}

func TestRun_recent(t *testing.T) {
	t.Parallel()
	cases := discrepancyCases()
	for _, name := range []string{"a lost order", "another amount", "a pending order without a key", "an orphaned intent of a lost order"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLateFixture(t, 0, cases[name].setup...)
			require.Empty(t, runReconcile(f, true).Discrepancies)
		})
	}
	t.Run("our record alone", func(t *testing.T) {
		t.Parallel()
		f := newOldFixture(t, cases["another amount"].setup...)
		require.Empty(t, runReconcile(f, true).Discrepancies)
	})
	t.Run("not in the future", func(t *testing.T) { // a clock ran ahead, so no run is active
		t.Parallel()
		f := newOldFixture(t, cases["another amount"].setup...)
		age(f)
		f.Do(sql(`UPDATE orders SET created_at = created_at + interval '1 day'`),
			sql(`UPDATE idempotency_keys SET created_at = created_at + interval '1 day', updated_at = updated_at + interval '1 day', finished_at = finished_at + interval '1 day'`))
		require.Equal(t, cases["another amount"].want, discrepancies(f))
	})
}

// An operator who does what the runbook says about each kind ends every discrepancy, and no customer has paid more
// than the order says.
func TestRunbook_discrepancies(t *testing.T) {
	t.Parallel()
	for name, test := range discrepancyCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLateFixture(t, 4*time.Hour, test.setup...)
			for range 3 { // what a refund leaves is listed by the next comparison
				age(f)
				report := runReconcile(f, true)
				for _, d := range report.Discrepancies {
					if !d.Fixed {
						remedy(f, d, report)
					}
				}
			}
			age(f)
			require.Empty(t, discrepancies(f))
			var charged []string
			kept := 0
			for _, charge := range f.Stripe.Charges() {
				charged = append(charged, charge.IntentID)
				kept += int(charge.Amount - charge.Refunded)
			}
			require.Equal(t, kept, f.Count(`SELECT coalesce(sum(amount - amount_refunded), 0) FROM orders WHERE paid_at IS NOT NULL AND payment_intent_id = ANY($1)`, charged))
		})
	}
}

func remedy(f *Fixture, d reconcile.Discrepancy, report reconcile.Report) {
	f.T.Helper()
	listed := func(kind reconcile.Kind) bool {
		return slices.ContainsFunc(report.Discrepancies, func(other reconcile.Discrepancy) bool {
			return other.Kind == kind && other.OrderID == d.OrderID
		})
	}
	switch d.Kind {
	case reconcile.DuplicateCharge, reconcile.UnrecordedCharge:
		if d.Kind == reconcile.DuplicateCharge && listed(reconcile.MissingAtProvider) {
			f.Exec("UPDATE orders SET payment_intent_id = $1 WHERE id = $2", d.IntentID, d.OrderID)
			return
		}
		f.OutOfBand("/v1/refunds", "payment_intent", d.IntentID)
		acknowledge(f, d)
	case reconcile.MissingAtProvider:
		if !listed(reconcile.DuplicateCharge) {
			acknowledge(f, d)
		}
	case reconcile.UnrecordedRefund:
		acknowledge(f, d)
	case reconcile.AmountMismatch:
		f.Exec("UPDATE orders SET amount = $1 WHERE id = $2", d.Provider.Amount, d.OrderID)
	case reconcile.OpenIntent:
		f.OutOfBand("/v1/payment_intents/" + d.IntentID + "/cancel")
	case reconcile.OrphanedRecord:
		f.Exec("UPDATE orders SET status = 'payment_failed', failure_code = 'canceled' WHERE id = $1", d.OrderID)
	}
}
