package main_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/payments/stripetest"
)

// An operator who has only the order's id sees whether the customer was charged, whether the receipt was
// sent, and why money did not come back. The roles of deploy/roles.sql may refund.
func TestKeysShow_afterTheResponse(t *testing.T) {
	t.Parallel()
	f, owner := newFixtureWithRoles(t)
	var provider string
	f.stripe, provider = programtest.FakeStripe(t) // whose clock is right, because the list of events begins with the account
	f.environ = f.with("STRIPE_API_BASE=" + provider)
	programtest.Succeed(t, owner, "migrate", "up")
	f.apiKey = createAccount(t, f.environ)
	a := f.serve(f.environ, "--shutdown-delay", "0")
	order := func(card string) string {
		return programtest.RequirePaid(t, a.MustOrder("an-order-with-"+card, strings.Replace(programtest.Tea, "pm_card_visa", card, 1)))
	}
	refunded, disputed := order("pm_card_refundFail"), order("pm_card_createDispute")
	refund := a.MustDo(http.MethodPost, "/v1/orders/"+refunded+"/refunds", `{"amount":700}`, http.Header{"Idempotency-Key": {"a-refund-that-fails-late"}})
	require.Equal(t, http.StatusCreated, refund.Status)
	refused := a.MustDo(http.MethodPost, "/v1/orders/"+disputed+"/refunds", `{}`, http.Header{"Idempotency-Key": {"a-refund-of-a-disputed-order"}})
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status, "%s", refused.Body)
	require.Regexp(t, `(?m)^found +refund [0-9a-f-]{36}, `, f.keys("show", idempotency.DeriveID("refund", f.account(), "a-refund-that-fails-late").String()))
	declined := a.MustOrder("a-declined-order-1", strings.Replace(programtest.Tea, "pm_card_visa", "pm_card_visa_chargeDeclinedInsufficientFunds", 1))
	require.Equal(t, http.StatusPaymentRequired, declined.Status)
	a.Stop()
	require.NoError(t, f.stripe.Settle(f.stripe.Refunds()[0].ID, false))
	atDashboard, err := f.stripe.RefundAtDashboard(f.stripe.Charges()[0].IntentID, 500, "")
	require.NoError(t, err)
	programtest.Succeed(t, f.environ, "completer")
	programtest.Fail(t, f.with("SMTP_URL=smtp://127.0.0.1:1"), "worker", "--once")

	shown := f.keys("show", refunded)
	for _, line := range []string{
		"order's status +partially_refunded",
		`charged +25\.00 USD, of which 5\.00 USD was refunded`,
		"discrepancy of the order +[0-9a-f-]{36}, not acknowledged, refund_failed_late",
		"receipt of the order +not sent yet, attempts: 1, .*connection refused",
		`refund of the order +[0-9a-f-]{36}, failed \(expired_or_canceled_card\), 7\.00 USD`,
		`refund of the order +[0-9a-f-]{36}, succeeded, 5\.00 USD, made at the provider`,
		`20.{17} +refund\.failed \{.*`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", shown)
	}
	_, history, _ := strings.Cut(shown, "\n")
	shown = f.keys("show", atDashboard)
	require.Regexp(t, `^found +refund [0-9a-f-]{36}, succeeded\n`, shown)
	require.Contains(t, shown, history, "of the key of its order")
	shown = f.keys("show", disputed)
	require.Regexp(t, `(?m)^dispute of the order +(dp|du)_\w+, needs_response, 25\.00 USD, fraudulent$`, shown)
	require.Regexp(t, `(?m)^refund of the order +[0-9a-f-]{36}, failed \(charge_disputed\), 25\.00 USD$`, shown)
	shown = f.keys("show", "a-declined-order-1")
	require.Regexp(t, `(?m)^order's status +payment_failed, because of card_declined \(insufficient_funds\)$`, shown)
}

// A refund that is refused because of a dispute shows that our records are out of date.
func TestErase_refundOfDisputed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id, erase, refuse := f.paidOrder("an-order-to-dispute-2")
	dispute, err := f.stripe.Dispute(f.stripe.Charges()[0].IntentID, 2500, "fraudulent", "needs_response")
	require.NoError(t, err)
	f.stripe.EditEvents(func(e *stripetest.Event) { e.Type = "charge.updated" }) // the events are lost
	refund := f.shared().MustDo(http.MethodPost, "/v1/orders/"+id+"/refunds", "{}", http.Header{"Idempotency-Key": {"a-refund-that-is-refused"}})
	require.Equal(t, http.StatusUnprocessableEntity, refund.Status)
	require.Contains(t, string(refund.Body), "charge_disputed")
	require.Contains(t, refuse(), "a provider_change of it is queued, failed or not acknowledged")
	f.exec("DELETE FROM staged_jobs")
	require.Contains(t, refuse(), "a refund was refused because of a dispute that is not read yet")

	require.NoError(t, f.stripe.UpdateDispute(dispute, "lost"))
	programtest.Succeed(t, f.environ, "worker", "--once")
	erase()
}
