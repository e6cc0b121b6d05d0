package stripetest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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
	requireUnexpectedState(t, s.post(path+"/cancel", "second/cancel", ""), "succeeded", "false")
}

const (
	challengeCard        = "pm_card_threeDSecure2Required"
	authenticationFailed = "payment_intent_authentication_failure"
)

func (s *fake) challenge(card string) reply {
	s.t.Helper()
	r := s.post(intentsPath, "", newCard+card+"&use_stripe_sdk=true")
	require.Equal(s.t, "requires_action", r.field("status"), r.body)
	return r
}

func (s *fake) read(id string) reply { return s.get(intentsPath + "/" + id) }

func TestAuthenticate_http(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	act := func(pi reply, act, secret string) reply {
		return s.send(http.MethodPost, "/customer/"+pi.field("id")+"/"+act, url.Values{"client_secret": {secret}}.Encode(),
			http.Header{"Authorization": {"none"}, "Content-Type": {"application/x-www-form-urlencoded"}})
	}
	approved, declined := s.challenge(challengeCard), s.challenge(challengeCard)
	secret := approved.field("client_secret")
	for _, wrong := range []string{"", approved.field("id"), declined.field("client_secret")} {
		require.Equal(t, http.StatusNotFound, act(approved, "approve", wrong).status)
	}
	require.Equal(t, "requires_action", s.read(approved.field("id")).field("status"))

	require.Equal(t, http.StatusNoContent, act(declined, "decline", declined.field("client_secret")).status)
	require.Equal(t, authenticationFailed, s.read(declined.field("id")).field("last_payment_error.code"))
	require.Equal(t, http.StatusNoContent, act(approved, "approve", secret).status)
	refused := act(approved, "approve", secret)
	require.Equal(t, http.StatusConflict, refused.status)
	require.NotContains(t, refused.body, "_secret_")
	require.Len(t, s.Charges(), 1)
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

func TestCards_disputes(t *testing.T) {
	t.Parallel()
	for card, want := range map[string][]string{
		"pm_card_visa":                            nil,
		"pm_card_createIssuerFraudRecord":         nil,
		"pm_card_createDispute":                   {"needs_response fraudulent, refundable: false"},
		"pm_card_createDisputeProductNotReceived": {"needs_response product_not_received, refundable: false"},
		"pm_card_createComplianceDispute":         {"needs_response noncompliant, refundable: false"},
		"pm_card_createDisputeInquiry":            {"warning_needs_response fraudulent, refundable: true"},
		"pm_card_createMultipleDisputes":          {"needs_response fraudulent, refundable: false", "needs_response fraudulent, refundable: false"},
	} {
		s := start(t, stripetest.Options{})
		id := s.create(newCard + card)
		var got []string
		for _, d := range s.Disputes() {
			got = append(got, fmt.Sprintf("%s %s, refundable: %t", d.Status, d.Reason, d.Refundable))
		}
		require.Equal(t, want, got, card)
		refundable := !slices.ContainsFunc(s.Disputes(), func(d stripetest.Dispute) bool { return !d.Refundable })
		require.Equal(t, refundable, s.post(refundsPath, "", "payment_intent="+id).status == http.StatusOK, card)
	}
}

// A challenge is shown by Stripe.js, unless the confirm has a page to which the customer returns.
func TestConfirm_action(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	const back = "&return_url=https://shop.example.com"
	for form, want := range map[string]string{
		"": "use_stripe_sdk", "&use_stripe_sdk=true": "use_stripe_sdk", back: "redirect_to_url", back + "&use_stripe_sdk=true": "use_stripe_sdk",
	} {
		id := s.post(intentsPath, "", newCard+challengeCard+form).field("id")
		require.Equal(t, want, s.read(id).field("next_action.type"), form)
	}
	automatic := "amount=2000&currency=usd&confirm=true&payment_method=" + challengeCard + back
	require.Equal(t, "https://shop.example.com", s.post(intentsPath, "", automatic).field("next_action.redirect_to_url.return_url"))
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

const refundsPath = "/v1/refunds"

func TestRefund_partial(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	paid := s.post(intentsPath, "", visa)
	id, charge := paid.field("id"), paid.field("latest_charge")

	part := s.post(refundsPath, "part", "payment_intent="+id+"&amount=1400")
	require.Equal(t, http.StatusOK, part.status, part.body)
	require.Equal(t, "succeeded", part.field("status"))
	require.Equal(t, charge, part.field("charge"))
	require.Equal(t, map[string]int64{"usd": 600}, s.MoneyMoved())

	over := s.post(refundsPath, "over", "payment_intent="+id+"&amount=601")
	requireError(t, over, http.StatusBadRequest, "", "amount")
	rest := s.post(refundsPath, "rest", "payment_intent="+id)
	require.Equal(t, "600", rest.field("amount"))
	require.Equal(t, map[string]int64{"usd": 0}, s.MoneyMoved())
	again := s.post(refundsPath, "again", "payment_intent="+id)
	requireError(t, again, http.StatusBadRequest, "charge_already_refunded", "")

	found, _ := idsOf(t, s.get(refundsPath+"?payment_intent="+id))
	require.Equal(t, []string{rest.field("id"), part.field("id")}, found)
}

func idsOf(t *testing.T, r reply) (found []string, more bool) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	var page struct {
		HasMore bool `json:"has_more"`
		Data    []struct{ ID string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &page))
	require.NotNil(t, page.Data)
	require.False(t, page.HasMore && len(page.Data) == 0, "stripe-go panics")
	for _, o := range page.Data {
		found = append(found, o.ID)
	}
	return found, page.HasMore
}

const ofOrder1 = `metadata['order_id']:'order-1'`

func (s *fake) search(query string) reply {
	return s.get(intentsPath + "/search?query=" + url.QueryEscape(query))
}

// The index lags: a search does not find a new intent, and returns an old state of others.
func TestSearch_delay(t *testing.T) {
	t.Parallel()
	for option, delay := range map[time.Duration]time.Duration{0: time.Minute, time.Hour: time.Hour} {
		s := start(t, stripetest.Options{Clock: func() time.Time { return time.Unix(1_000_000, 0) }, SearchDelay: option})
		id := s.create(unconfirmed)
		s.Advance(delay - time.Second)
		found, _ := idsOf(t, s.search(ofOrder1))
		require.Empty(t, found)
		require.Equal(t, http.StatusOK, s.post(intentsPath+"/"+id+"/confirm", "", "off_session=true").status)
		for _, status := range []string{"requires_confirmation", "succeeded"} {
			s.Advance(time.Second)
			page := s.search(ofOrder1)
			found, _ := idsOf(t, page)
			require.Equal(t, []string{id}, found)
			require.Contains(t, page.body, `"status": "`+status+`"`)
			s.Advance(delay)
		}
	}
}
