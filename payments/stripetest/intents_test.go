package stripetest_test

import (
	"cmp"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

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
	}
	require.Equal(t, "requires_confirmation", s.get(path).field("status"), "reading needs no lock")
	require.ErrorContains(t, s.ConfirmAsCustomer(id, ""), "is locked by a request")
	s.Advance(48 * time.Hour)
	requireError(t, s.post(path+"/confirm", "first", "off_session=true"), http.StatusConflict, "idempotency_key_in_use", "")

	hold.Release()
	require.Equal(t, "succeeded", (<-first).field("status"))
	requireError(t, s.post(path+"/cancel", "second/cancel", ""), http.StatusBadRequest, "payment_intent_unexpected_state", "")
}

// The cards that a test of orders uses are shown there.
func TestCards(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for card, want := range map[string]string{
		"pm_card_pl":                                  "succeeded",
		"pm_card_th_debit":                            "succeeded",
		"pm_card_visa_cartesBancaires":                "succeeded",
		"pm_card_bypassPending":                       "succeeded",
		"pm_card_threeDSecureOptional":                "succeeded",
		"pm_card_riskLevelElevated":                   "succeeded",
		"pm_card_chargeCustomerFail":                  "generic_decline",
		"pm_card_riskLevelHighest":                    "fraudulent",
		"pm_card_cvcCheckFail":                        "incorrect_cvc",
		"pm_card_avsFail":                             "incorrect_zip",
		"pm_card_threeDSecureRequiredProcessingError": "generic_decline",
		"pm_card_threeDSecureRequiredChargeDeclined":  "use_stripe_sdk",
		stripetest.ActionCard("oxxo_display_details"): "oxxo_display_details",
	} {
		r := s.post(intentsPath, "", newCard+card)
		require.Equal(t, want, cmp.Or(r.field("error.decline_code"), r.field("next_action.type"), r.field("status")), card)
	}
	requireError(t, s.post(intentsPath, "", newCard+stripetest.ActionCard("")), http.StatusBadRequest, "resource_missing", "payment_method")
}

func TestForm_invalid(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	for form, want := range map[string]struct{ code, param string }{
		"currency=usd": {"parameter_missing", "amount"},
		"amount=100":   {"parameter_missing", "currency"},
		"amount=100&currency=usd&reason=duplicate":                                 {"parameter_unknown", "reason"},
		"amount=100&currency=usd&metadata[a][b]=v":                                 {"parameter_unknown", "metadata[a][b]"},
		"amount=100&currency=":                                                     {"parameter_invalid_empty", "currency"},
		"amount=100&amount=200&currency=usd":                                       {"", "amount"},
		"amount=12.5&currency=usd":                                                 {"parameter_invalid_integer", "amount"},
		"amount=99999999999999999999&currency=usd":                                 {"parameter_invalid_integer", "amount"},
		"amount=100&currency=usd&confirm=yes":                                      {"", "confirm"},
		"amount=100&currency=usd&use_stripe_sdk=true":                              {"", "confirm"},
		"amount=100&currency=usd&return_url=https://shop.example.com":              {"", "confirm"},
		"amount=0&currency=usd":                                                    {"parameter_invalid_integer", "amount"},
		"amount=49&currency=eur":                                                   {"amount_too_small", "amount"},
		"amount=100000000&currency=usd":                                            {"amount_too_large", "amount"},
		"amount=5124&currency=kwd":                                                 {"parameter_invalid_integer", "amount"},
		"amount=100&currency=USD":                                                  {"", "currency"},
		"amount=100&currency=usd&payment_method=pm_none":                           {"resource_missing", "payment_method"},
		"amount=100&currency=usd&automatic_payment_methods[allow_redirects]=never": {"parameter_missing", "automatic_payment_methods[enabled]"},
		"amount=2000&currency=usd&payment_method=pm_card_visa&confirm=true":        {"", "return_url"},
		"amount=100&currency=usd&payment_method_types[0]=sepa_debit&payment_method=pm_card_sepaDebit": {"", "payment_method_types[0]"},
	} {
		r := s.post(intentsPath, "k", form)
		requireError(t, r, http.StatusBadRequest, want.code, want.param)
		require.Equal(t, "invalid_request_error", r.field("error.type"))
		require.Empty(t, r.header.Get("Stripe-Should-Retry"))
	}
	require.Zero(t, s.executions("k"))
}

// The index lags: a search does not find a new intent, and returns an old state of others.
func TestSearch_delay(t *testing.T) {
	t.Parallel()
	for option, delay := range map[time.Duration]time.Duration{0: time.Minute, time.Hour: time.Hour} {
		s := start(t, stripetest.Options{Clock: func() time.Time { return time.Unix(1_000_000, 0) }, SearchDelay: option})
		id := s.create(unconfirmed)
		search := func() string {
			return s.get(intentsPath + "/search?query=" + url.QueryEscape("metadata['order_id']:'order-1'")).body
		}
		s.Advance(delay - time.Second)
		require.Contains(t, search(), `"data": []`)
		require.Equal(t, http.StatusOK, s.post(intentsPath+"/"+id+"/confirm", "", "off_session=true").status)
		for _, status := range []string{"requires_confirmation", "succeeded"} {
			s.Advance(time.Second)
			require.Contains(t, search(), `"status": "`+status+`"`)
			s.Advance(delay)
		}
	}
}

func TestKey_inFlight(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	hold := s.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Key: "k"})
	first := s.background(intentsPath, "k", visa)
	reached(t, hold)

	requireError(t, s.post(intentsPath, "k", visa), http.StatusConflict, "idempotency_key_in_use", "")
	mismatch := s.post(intentsPath, "k", "amount=1&currency=usd")
	require.Equal(t, "idempotency_error", mismatch.field("error.type"), "the comparison comes first")
	require.Empty(t, s.Charges())

	hold.Release()
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, "true", s.post(intentsPath, "k", visa).header.Get("Idempotent-Replayed"), "the 409 was not stored")
	require.Equal(t, 1, s.executions("k"))
	require.Len(t, s.Charges(), 1)
}
