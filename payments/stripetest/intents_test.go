package stripetest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// A confirm of a succeeded intent is refused before it is executed, so its key stays unused.
func requireUnexpectedState(t *testing.T, r reply, status, shouldRetry string) {
	t.Helper()
	requireError(t, r, http.StatusBadRequest, "payment_intent_unexpected_state", "")
	require.Equal(t, status, r.field("error.payment_intent.status"))
	require.Equal(t, shouldRetry, r.header.Get("Stripe-Should-Retry"))
}

func TestConfirm_atMostOneCharge(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	path := intentsPath + "/" + s.create(unconfirmed)
	require.Equal(t, http.StatusOK, s.post(path+"/confirm", "1", "off_session=true").status)
	s.Advance(1000 * time.Hour)
	requireUnexpectedState(t, s.post(path+"/confirm", "2", "off_session=true"), "succeeded", "")
	requireUnexpectedState(t, s.post(path+"/confirm", "3", "payment_method=pm_card_visa"), "succeeded", "")
	requireUnexpectedState(t, s.post(path+"/cancel", "4", ""), "succeeded", "false")
	require.Len(t, s.Charges(), 1)
}

func TestSettle(t *testing.T) {
	t.Parallel()
	for success, want := range map[bool]struct{ status, code string }{
		true:  {status: "succeeded"},
		false: {status: "requires_payment_method", code: "card_declined"},
	} {
		s := start(t, stripetest.Options{})
		id := s.create("amount=2000&currency=usd&payment_method_types[0]=card&payment_method=" + stripetest.ProcessingCard)
		require.Error(t, s.Settle(id, true), "not confirmed yet")
		path := intentsPath + "/" + id
		require.Equal(t, "processing", s.post(path+"/confirm", "", "").field("status"))
		requireUnexpectedState(t, s.post(path+"/confirm", "", ""), "processing", "false")
		require.Empty(t, s.Charges())

		require.NoError(t, s.Settle(id, success))
		read := s.get(path)
		require.Equal(t, want.status, read.field("status"))
		require.Equal(t, want.code, read.field("last_payment_error.code"))
		require.Equal(t, success, len(s.Charges()) == 1)
		require.Error(t, s.Settle(id, true), "not pending any more")
	}
}

func TestIntent_locked(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	id := s.create(unconfirmed)
	path := intentsPath + "/" + id
	hold := s.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Key: "first"})
	first := s.background(path+"/confirm", "first", "off_session=true")
	reached(t, hold)

	for _, act := range []string{"/confirm", "/cancel"} {
		r := s.post(path+act, "second"+act, "")
		requireError(t, r, http.StatusTooManyRequests, "lock_timeout", "")
		require.Equal(t, "true", r.header.Get("Stripe-Should-Retry"))
		require.Equal(t, r.header.Get("Request-Id"), r.header.Get("Original-Request"))
	}
	require.Equal(t, "requires_confirmation", s.get(path).field("status"), "reading needs no lock")
	require.ErrorContains(t, s.ConfirmAsCustomer(id, ""), "is locked by a request")
	s.Advance(48 * time.Hour)
	requireError(t, s.post(path+"/confirm", "first", "off_session=true"), http.StatusConflict, "idempotency_key_in_use", "")

	hold.Release()
	require.Equal(t, "succeeded", (<-first).field("status"))
	requireUnexpectedState(t, s.post(path+"/cancel", "second/cancel", ""), "succeeded", "false")
}
