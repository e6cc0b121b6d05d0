package stripetest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const disputesPath = "/v1/disputes"

func TestDispute(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	disputed, inquired, open := s.create(newCard+"pm_card_createDispute"), s.create(newCard+"pm_card_createDisputeInquiry"), s.create(unconfirmed)
	listed := s.get(disputesPath + "?payment_intent=" + disputed)
	found, _ := idsOf(t, listed)
	require.Len(t, found, 1)
	require.Contains(t, listed.body, `"status": "needs_response"`)
	require.Contains(t, listed.body, `"payment_intent": "`+disputed+`"`)

	refused := s.post(refundsPath, "", "payment_intent="+disputed)
	requireError(t, refused, http.StatusBadRequest, "charge_disputed", "")
	require.NoError(t, s.UpdateDispute(found[0], "won"))
	require.Equal(t, http.StatusOK, s.post(refundsPath, "", "payment_intent="+disputed).status)
	require.Equal(t, http.StatusOK, s.post(refundsPath, "", "payment_intent="+inquired).status)

	second, err := s.Dispute(disputed, 100, "duplicate", "lost")
	require.NoError(t, err)
	require.NoError(t, s.UpdateDispute(second, "needs_response"), "statuses may go backwards")
	found, _ = idsOf(t, s.get(disputesPath+"?limit=1"))
	require.Equal(t, []string{second}, found)
	require.Len(t, s.Disputes(), 3)

	_, err = s.Dispute(open, 100, "duplicate", "lost")
	require.EqualError(t, err, "stripetest: "+open+" has no charge")
	require.EqualError(t, s.UpdateDispute("dp_x", "won"), "stripetest: no dispute dp_x")
}
