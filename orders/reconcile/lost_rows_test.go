package reconcile_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
	"example.com/orders-api/payments/stripetest"
)

func TestRun_lostRowsAtOnce(t *testing.T) {
	t.Parallel()
	f := newLateFixture(t, -time.Minute) // the provider's clock is ahead
	lost := f.WithNewKey(t)
	lost.Do(paid, LoseRows)
	lostOrder := OrderID(f.Account, lost.Key)
	f.WithNewKey(t).Do(declined, LoseRows)
	f.InsertIntent("metadata[order_id]", lostOrder.String())
	f.InsertIntent("metadata[order_id]", lostOrder.String(), "payment_method", stripetest.ProcessingCard, "confirm", "true")
	insertCharge(f, "metadata[account_id]", uuid.NewString())
	f.Do(paid)
	insertRefund(f)
	f.Exec("UPDATE orders SET created_at = created_at + interval '1 minute'")
	require.Empty(t, discrepancies(f), "recent activity may be in progress")

	report, err := compare(f, func(c *reconcile.Options) { c.LostRows = true })
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"unrecorded_charge: intent succeeded, order missing, unknown account",
		"unrecorded_charge: intent succeeded, order missing",
		"unrecorded_refund: refund succeeded, payment not recorded",
		"open_intent: intent processing, order missing",
		"orphaned_intent: intent requires_confirmation, order missing",
		"orphaned_intent: intent declined, order missing",
	}, inWords(report))
	charge := report.Discrepancies[slices.IndexFunc(report.Discrepancies, func(d reconcile.Discrepancy) bool {
		return d.Kind == reconcile.UnrecordedCharge && d.AccountID == f.Account
	})]
	require.Equal(t, []uuid.UUID{f.Account, lostOrder, idempotency.KeyID(f.Account, lost.Key)},
		[]uuid.UUID{charge.AccountID, charge.OrderID, charge.KeyID})
	require.Equal(t, reconcile.Money{Amount: OrderAmount, Currency: "usd"}, charge.Provider)
	require.WithinDuration(t, time.Now(), charge.Created, time.Minute)
}

// The customer of a lost order still has the client secret, so the intent is cancelled (R23).
func TestRun_lostChallenge(t *testing.T) {
	t.Parallel()
	for status, act := range map[string]Step{"requires_action": func(*Fixture) {}, "declined": FailChallenge} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			f := newLateFixture(t, 0, Challenge, act, LoseRows)
			id := f.IntentID()
			f.Do(Before(Cancel, func(f *Fixture) { require.Len(t, findings(f), 1, "recorded before it is fixed") }))
			report, err := compare(f, func(c *reconcile.Options) { c.LostRows, c.Fix = true, true })
			require.NoError(t, err)
			require.Equal(t, []string{"orphaned_intent: intent " + status + ", order missing => fixed"}, inWords(report))
			result, err := f.CreateOrder(ChallengeCard)
			require.NoError(t, err)
			require.GreaterOrEqual(t, result.Response.Status, 400, "the first retry is final")
			require.Error(t, f.Stripe.Authenticate(id, true))
			require.Error(t, f.Stripe.ConfirmAsCustomer(id, Visa))
			require.Empty(t, f.Stripe.Charges())
		})
	}
}

// A retry of a lost key charges again when the provider's keys have expired, unless the key
// was expired here.
func TestRun_lostKeyIsRetried(t *testing.T) {
	t.Parallel()
	expire := func(f *Fixture) {
		for _, fix := range []bool{true, true, false} { // a later run reports it, too
			report, err := compare(f, func(c *reconcile.Options) { c.LostRows, c.Fix, c.Actor = true, fix, "grace" })
			require.NoError(f.T, err)
			require.Equal(f.T, []string{"unrecorded_charge: intent succeeded, order missing, key expired"}, inWords(report))
			require.Equal(f.T, 1, report.Open(), "the charge itself needs an operator")
		}
	}
	for name, test := range map[string]struct {
		before  []Step
		later   time.Duration
		expired bool
		charges int
	}{
		"within a day":              {later: 23 * time.Hour, charges: 1},
		"after a day":               {later: 25 * time.Hour, charges: 2},
		"expired, and within a day": {before: []Step{expire}, later: 23 * time.Hour, expired: true, charges: 1},
		"expired, and after a day":  {before: []Step{expire}, later: 25 * time.Hour, expired: true, charges: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLateFixture(t, 0, paid, LoseRows)
			f.Do(test.before...)
			f.Stripe.Advance(test.later)
			_, err := f.CreateOrder(Visa)
			var expired *idempotency.KeyExpiredError
			require.Equal(t, test.expired, errors.As(err, &expired), "%v", err)
			if test.expired {
				require.True(t, expired.Key.Lost, "no order may be named")
				status, _, err := f.Engine.Lookup(t.Context(), f.Account, f.Key)
				require.NoError(t, err)
				require.Equal(t, "expired", status.State())
				require.Empty(t, httpjson.LinksOf(f.Engine, status), "the order is lost")
				records, err := audit.Records(t.Context(), f.Pool, f.Account, idempotency.KeyID(f.Account, f.Key))
				require.NoError(t, err)
				require.Len(t, records, 1)
				require.Equal(t, "key.expire", records[0].Action)
				require.Regexp(t, `^\{"by": "grace", "reason": "the rows of pi_\w+ were lost"\}$`, string(records[0].Data))
			} else {
				require.NoError(t, err)
			}
			f.Do(ExpectCharges(test.charges))
		})
	}
}

// An account that knows none of our intents, as with a wrong API key, proves nothing.
func TestRun_anotherProviderAccount(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, paid, age)
	AnotherAccount(f)
	for _, lost := range []bool{false, true} {
		_, err := compare(f, func(c *reconcile.Options) { c.LostRows, c.Fix = lost, lost })
		require.ErrorContains(t, err, "another account or mode")
	}
	f.Transport.Intercept(nil)
	require.Empty(t, discrepancies(f))
}

// A key is expired only with LostRows, and only while its order is missing.
func TestRun_expiredKeys(t *testing.T) {
	t.Parallel()
	expired := func(f *Fixture) int {
		return f.Count("SELECT count(*) FROM idempotency_keys WHERE expired_at IS NOT NULL")
	}
	lostRows := func(c *reconcile.Options) { c.LostRows, c.Fix = true, true }
	f := newOldFixture(t, paid, LoseRows, age)
	runReconcile(f, true)
	require.Zero(t, expired(f))
	f.Do(After(ListRefunds, paid))
	report, err := compare(f, lostRows)
	require.NoError(t, err)
	require.Equal(t, []string{"unrecorded_charge: intent succeeded, order missing => not fixed: it has changed since it was listed"}, inWords(report))
	f.Exec("UPDATE orders SET status = 'payment_failed', paid_at = NULL, failure_code = 'card_declined'")
	report, err = compare(f, lostRows)
	require.NoError(t, err)
	require.Equal(t, []string{"unrecorded_charge: intent succeeded, order payment_failed, response 201"}, inWords(report))
	require.Zero(t, expired(f))

	f = newLateFixture(t, 0)
	f.InsertIntent("payment_method", stripetest.ProcessingCard, "confirm", "true")
	report, err = compare(f, lostRows)
	require.NoError(t, err)
	require.Equal(t, []string{"open_intent: intent processing, order missing, key expired"}, inWords(report))
	require.Equal(t, 1, expired(f))
}
