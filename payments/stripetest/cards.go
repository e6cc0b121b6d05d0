package stripetest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

type card struct {
	challenge     bool     // asks the customer, so a payment without the customer (off-session) is declined
	offSession    bool     // was set up for off-session payments, so these are not declined
	decline       *decline // how each payment is declined; nil if it succeeds
	declineLimit  bool     // was declined too often today, so each confirm is rejected and changes nothing
	processing    bool     // a payment is processing until Settle
	refundPending bool     // a refund is pending until Settle
	refundFails   bool     // a refund that has succeeded can fail by Settle
	disputes      []string // the reasons of the disputes of each charge, whose status is needs_response
	inquiry       bool     // these are inquiries of the bank, so the status is warning_needs_response
	action        string   // the type of the action that a challenge requires; "" for that of 3-D Secure
}

type decline struct{ code, reason, message, param string } // reason is Stripe's decline_code

// Cards that do not exist at Stripe.
const (
	ProcessingCard   = "pm_card_fakeProcessing"   // its payments are processing until Settle
	DeclineLimitCard = "pm_card_fakeDeclineLimit" // was declined too often today, which Stripe reports as an invalid request
)

// testCards are those of https://docs.stripe.com/testing for payments online, and the fake's own.
var testCards = makeTestCards()

func makeTestCards() map[string]card {
	const declined = "Your card was declined."
	noFunds := &decline{code: "card_declined", reason: "insufficient_funds", message: "Your card has insufficient funds."}
	cards := map[string]card{ProcessingCard: {processing: true}, DeclineLimitCard: {declineLimit: true}}
	add := func(c card, names ...string) {
		for _, name := range names {
			cards["pm_card_"+name] = c
		}
	}
	add(card{}, strings.Fields(`
		visa visa_debit visa_cartesBancaires visa_debit_eftposAuCoBranded mastercard mastercard_debit mastercard_prepaid
		mastercard_cartesBancaires mastercard_debit_eftposAuCoBranded amex discover diners jcb unionpay
		us ar br ca cl co cr ec mx pa pe py uy
		ae ae_mastercard at be bg by ch cy cz de dk ee es fi fr gb gb_debit gb_mastercard gi gr hr hu ie it li lt lu lv mt nl no pl pt ro se si sk
		au cn hk in jp my nz sg th_credit th_debit tw
		debit_visaFsaProductCode debit_visaHsaProductCode mastercard_debit_mastercardFsaProductCode
		bypassPending bypassPendingInternational amex_threeDSecureNotSupported threeDSecureOptional threeDSecureOptionalProcessingError
		riskLevelElevated highFraudDisputeScore highEfwScore radarDynamicRiskThreshold freeTrialAbuseBlock adaptive3dsChallenge
		avsLine1Fail avsUnchecked createIssuerFraudRecord
	`)...)
	for name, d := range map[string]*decline{
		"":                      genericDecline(),
		"InsufficientFunds":     noFunds,
		"LostCard":              {code: "card_declined", reason: "lost_card", message: declined},
		"StolenCard":            {code: "card_declined", reason: "stolen_card", message: declined},
		"ExpiredCard":           {"expired_card", "expired_card", "Your card has expired.", "exp_month"},
		"IncorrectCvc":          {"incorrect_cvc", "incorrect_cvc", "Your card's security code is incorrect.", "cvc"},
		"ProcessingError":       {"processing_error", "processing_error", "An error occurred while processing your card. Try again in a little bit.", ""},
		"VelocityLimitExceeded": {"card_declined", "card_velocity_exceeded", "Your card was declined for making repeated attempts too frequently or exceeding its amount limit.", ""},
	} {
		add(card{decline: d}, "chargeDeclined"+name, "visa_chargeDeclined"+name)
	}
	add(card{decline: genericDecline()}, "chargeCustomerFail", "threeDSecureRequiredProcessingError")
	// The next three kinds are declined in an account whose rules block such payments.
	add(card{decline: &decline{code: "card_declined", reason: "fraudulent", message: declined}}, "radarBlock", "riskLevelHighest")
	add(card{decline: &decline{"incorrect_cvc", "incorrect_cvc", "Your card's security code is incorrect.", "cvc"}}, "cvcCheckFail", "cvcCheckFailElevatedRisk")
	add(card{decline: &decline{
		"incorrect_zip", "incorrect_zip", "Your card could not be authorized using the postal code provided. Please " +
			"update the postal code, or contact your card issuer for further details.", "address_zip",
	}}, "avsFail", "avsZipFail", "avsZipFailElevatedRisk")
	add(card{challenge: true}, "authenticationRequired", "authenticationRequiredOnSetup", "threeDSecure2Required")
	add(card{challenge: true, offSession: true}, "authenticationRequiredSetupForOffSession")
	add(card{challenge: true, decline: noFunds}, "authenticationRequiredChargeDeclinedInsufficientFunds")
	add(card{challenge: true, decline: genericDecline()}, "threeDSecureRequiredChargeDeclined")
	add(card{refundFails: true}, "refundFail")
	add(card{refundPending: true}, "pendingRefund")
	add(card{disputes: []string{"fraudulent"}}, "createDispute", "createCe3EligibleDispute")
	add(card{disputes: []string{"product_not_received"}}, "createDisputeProductNotReceived")
	add(card{disputes: []string{"noncompliant"}}, "createComplianceDispute", "createMastercardComplianceDispute")
	// The reasons of the next two are not documented.
	add(card{disputes: []string{"fraudulent"}}, "createAutoRepresentmentEligibleDispute")
	add(card{disputes: []string{"fraudulent", "fraudulent"}}, "createMultipleDisputes")
	add(card{disputes: []string{"fraudulent"}, inquiry: true}, "createDisputeInquiry")
	return cards
}

const (
	declining = "pm_card_fakeDeclined_"
	acting    = "pm_card_fakeAction_"
)

// ActionCard returns a card whose customer has to do what a type of Stripe's next_action states. Its
// payments otherwise are those of a card with 3-D Secure.
func ActionCard(actionType string) string { return acting + actionType }

// DecliningCard returns a card whose payments are declined with these codes of Stripe. If Stripe has no
// test card for them, it is one of the fake.
func DecliningCard(code, declineCode string) string {
	for _, name := range slices.Sorted(maps.Keys(testCards)) {
		if c := testCards[name]; c.decline != nil && !c.challenge && c.decline.code == code && c.decline.reason == declineCode {
			return name
		}
	}
	return declining + code + "__" + declineCode
}

func findCard(name string) (c card, known bool) {
	if codes, ok := strings.CutPrefix(name, declining); ok {
		code, reason, valid := strings.Cut(codes, "__")
		return card{decline: &decline{code: code, reason: reason, message: "Your card was declined."}}, valid
	}
	if action, ok := strings.CutPrefix(name, acting); ok {
		return card{challenge: true, action: action}, action != ""
	}
	c, known = testCards[name]
	return c, known
}

func genericDecline() *decline {
	return &decline{code: "card_declined", reason: "generic_decline", message: "Your card was declined."}
}

func (s *Server) checkMethod(id string) *apiError {
	_, known := s.methods.byID[id]
	_, named := findCard(id)
	if id == "" || known || named {
		return nil
	}
	return missing(http.StatusBadRequest, "payment_method", "PaymentMethod", id)
}

func (s *Server) cardOf(ch *Charge) card {
	c, _ := findCard(s.methods.byID[ch.PaymentMethod].CardName)
	return c
}

// useMethod returns a payment method. A method is valid for one intent, and each use of a test name
// such as pm_card_visa creates a new one.
func (s *Server) useMethod(pi *intent, id string) (*paymentMethod, *apiError) {
	pm, ok := s.methods.byID[id]
	if !ok {
		pm = &paymentMethod{ID: newID("pm_1", 23), CardName: id}
		s.methods.put(pm)
	}
	if pm.UsedBy != "" && pm.UsedBy != pi.ID {
		return nil, invalidRequest(http.StatusBadRequest, "", "",
			"The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared with "+
				"a connected account without Customer attachment, or was detached from a Customer. It may not be used "+
				"again. To use a PaymentMethod multiple times, you must attach it to a Customer first.")
	}
	return pm, nil
}
