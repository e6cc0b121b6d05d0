package stripetest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestIntent_lifecycle(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 11, 21, 10, 0, 0, 0, time.UTC)
	s := start(t, stripetest.Options{Clock: func() time.Time { return now }})
	s.Advance(time.Hour)
	require.Equal(t, now.Add(time.Hour), s.Now())

	created := s.post(intentsPath, "create", unconfirmed+"&description=Order+1")
	require.Equal(t, http.StatusOK, created.status, created.body)
	require.Equal(t, "requires_confirmation", created.field("status"))
	require.Equal(t, "1763722800", created.field("created"))
	require.Equal(t, "2000", created.field("amount"))
	require.Equal(t, "usd", created.field("currency"))
	require.Equal(t, "order-1", created.field("metadata.order_id"))
	require.Equal(t, "never", created.field("automatic_payment_methods.allow_redirects"))
	require.Equal(t, "false", created.field("livemode"))
	require.Regexp(t, `^pi_\w+_secret_\w+$`, created.field("client_secret"))
	require.Regexp(t, `^pm_1\w+$`, created.field("payment_method"))
	require.Contains(t, created.body, `"latest_charge": null`)
	require.Empty(t, s.Charges())

	path := intentsPath + "/" + created.field("id")
	confirmed := s.post(path+"/confirm", "confirm", "off_session=true")
	require.Equal(t, http.StatusOK, confirmed.status, confirmed.body)
	require.Equal(t, "succeeded", confirmed.field("status"))
	require.Equal(t, "2000", confirmed.field("amount_received"))

	require.Equal(t, confirmed.body, s.get(path).body)
	require.Len(t, s.ChargesByOrder("order-1"), 1)
	require.Equal(t, stripetest.Charge{
		ID:       confirmed.field("latest_charge"),
		IntentID: created.field("id"),
		OrderID:  "order-1",
		Amount:   2000,
		Currency: "usd",
		Time:     time.Unix(1763722800, 0),
	}, s.Charges()[0])
}

func TestCreate_withoutPaymentMethod(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	r := s.post(intentsPath, "", "amount=2000&currency=usd&payment_method_types[0]=card")
	require.Equal(t, "requires_payment_method", r.field("status"))

	path := intentsPath + "/" + r.field("id") + "/confirm"
	bare := s.post(path, "", "")
	requireUnexpectedState(t, bare, "requires_payment_method")
	require.Contains(t, bare.field("error.message"), "it's missing a payment method")
	require.Equal(t, "succeeded", s.post(path, "", "payment_method=pm_card_visa").field("status"))
}

func requireUnexpectedState(t *testing.T, r reply, status string) {
	t.Helper()
	requireError(t, r, http.StatusBadRequest, "payment_intent_unexpected_state", "")
	require.Equal(t, status, r.field("error.payment_intent.status"))
	require.Equal(t, "false", r.header.Get("Stripe-Should-Retry"))
}

func TestConfirm_atMostOneCharge(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	path := intentsPath + "/" + s.create(unconfirmed)
	require.Equal(t, http.StatusOK, s.post(path+"/confirm", "1", "off_session=true").status)
	s.Advance(1000 * time.Hour)

	r := s.post(path+"/confirm", "2", "off_session=true")
	requireUnexpectedState(t, r, "succeeded")
	require.Contains(t, r.field("error.message"), "it has already succeeded")
	requireUnexpectedState(t, s.post(path+"/confirm", "3", "payment_method=pm_card_visa"), "succeeded")
	requireUnexpectedState(t, s.post(path+"/cancel", "4", ""), "succeeded")
	require.Len(t, s.Charges(), 1)
}

func TestConfirm_returnURL(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	form := "amount=2000&currency=usd&payment_method=pm_card_visa"
	requireError(t, s.post(intentsPath, "", form+"&confirm=true"), http.StatusBadRequest, "", "return_url")
	path := intentsPath + "/" + s.create(form) + "/confirm"
	requireError(t, s.post(path, "", ""), http.StatusBadRequest, "", "return_url")
}

func TestSettle(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		success bool
		status  string
		code    string
	}{
		"a processing payment succeeds": {success: true, status: "succeeded"},
		"a processing payment fails":    {status: "requires_payment_method", code: "card_declined"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			id := s.create("amount=2000&currency=usd&payment_method_types[0]=card&payment_method=" + stripetest.ProcessingCard)
			require.Error(t, s.Settle(id, true), "not confirmed yet")
			path := intentsPath + "/" + id
			require.Equal(t, "processing", s.post(path+"/confirm", "", "").field("status"))
			requireUnexpectedState(t, s.post(path+"/confirm", "", ""), "processing")
			requireUnexpectedState(t, s.post(path+"/cancel", "", ""), "processing")
			require.Empty(t, s.Charges())

			require.NoError(t, s.Settle(id, test.success))
			read := s.get(path)
			require.Equal(t, test.status, read.field("status"))
			require.Equal(t, test.code, read.field("last_payment_error.code"))
			require.Equal(t, test.status == "succeeded", len(s.Charges()) == 1)
			require.Error(t, s.Settle(id, true), "not pending any more")
		})
	}
}

func TestIntent_locked(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	path := intentsPath + "/" + s.create(unconfirmed)
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

	hold.Release()
	require.Equal(t, "succeeded", (<-first).field("status"))
	requireUnexpectedState(t, s.post(path+"/cancel", "second/cancel", ""), "succeeded")
}
