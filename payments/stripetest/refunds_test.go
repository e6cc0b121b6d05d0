package stripetest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const refundsPath = "/v1/refunds"

func TestRefund_partial(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	paid := s.post(intentsPath, "", visa)
	id, charge := paid.field("id"), paid.field("latest_charge")

	part := s.post(refundsPath, "part", "payment_intent="+id+"&amount=1400&reason=duplicate&metadata[refund_id]=r1")
	require.Equal(t, http.StatusOK, part.status, part.body)
	require.Equal(t, "succeeded", part.field("status"))
	require.Equal(t, charge, part.field("charge"))
	require.Equal(t, "r1", part.field("metadata.refund_id"))
	require.Equal(t, map[string]int64{"usd": 600}, s.MoneyMoved())
	require.Equal(t, part.body, s.post(refundsPath, "part", "payment_intent="+id+"&amount=1400&reason=duplicate&metadata[refund_id]=r1").body)

	over := s.post(refundsPath, "over", "payment_intent="+id+"&amount=601")
	requireError(t, over, http.StatusBadRequest, "", "amount")
	require.Equal(t, "Refund amount (601 usd) is greater than unrefunded amount on charge (600 usd)", over.field("error.message"))

	rest := s.post(refundsPath, "rest", "payment_intent="+id)
	require.Equal(t, "600", rest.field("amount"))
	require.Equal(t, map[string]int64{"usd": 0}, s.MoneyMoved())
	require.Equal(t, int64(2000), s.Charges()[0].Refunded)

	again := s.post(refundsPath, "again", "payment_intent="+id)
	requireError(t, again, http.StatusBadRequest, "charge_already_refunded", "")
	require.Equal(t, "Charge "+charge+" has already been refunded.", again.field("error.message"))
	require.Equal(t, "false", again.header.Get("Stripe-Should-Retry"))

	found, _ := idsOf(t, s.get(refundsPath+"?payment_intent="+id))
	require.Equal(t, []string{rest.field("id"), part.field("id")}, found)
	require.Equal(t, "1400", s.get(refundsPath+"/"+part.field("id")).field("amount"))

	refunds := s.Refunds()
	require.Len(t, refunds, 2)
	require.Equal(t, part.field("id"), refunds[0].ID)
	require.Equal(t, id, refunds[0].IntentID)
	require.Equal(t, "r1", refunds[0].Name)
	require.EqualValues(t, 1400, refunds[0].Amount)
	require.Equal(t, "succeeded", refunds[0].Status)
}

func TestRefund_settledLater(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		card    string
		status  string
		success bool
		settled string
		moved   int64
	}{
		{"pm_card_pendingRefund", "pending", true, "succeeded", 0},
		{"pm_card_pendingRefund", "pending", false, "failed", 2000},
		{"pm_card_refundFail", "succeeded", false, "failed", 2000},
	} {
		s := start(t, stripetest.Options{})
		refund := s.post(refundsPath, "", "payment_intent="+s.create(newCard+test.card))
		require.Equal(t, test.status, refund.field("status"))
		require.Equal(t, map[string]int64{"usd": 0}, s.MoneyMoved())

		require.NoError(t, s.Settle(refund.field("id"), test.success))
		require.Equal(t, test.settled, s.get(refundsPath+"/"+refund.field("id")).field("status"))
		require.Equal(t, map[string]int64{"usd": test.moved}, s.MoneyMoved())
		require.Error(t, s.Settle(refund.field("id"), false))
	}
}

func TestRefund_invalid(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	open, paid := s.create(unconfirmed), s.create(visa)
	for form, want := range map[string]struct{ code, param string }{
		"":                                     {"parameter_missing", "payment_intent"},
		"payment_intent=pi_x":                  {"resource_missing", "payment_intent"},
		"payment_intent=" + paid + "&amount=0": {"parameter_invalid_integer", "amount"},
		"payment_intent=" + paid + "&reason=mood": {"", "reason"},
		"payment_intent=" + open:                  {"", ""},
	} {
		requireError(t, s.post(refundsPath, "", form), http.StatusBadRequest, want.code, want.param)
	}
	requireError(t, s.get(refundsPath+"/re_x"), http.StatusNotFound, "resource_missing", "id")
	require.Equal(t, map[string]int64{"usd": 2000}, s.MoneyMoved())
}
