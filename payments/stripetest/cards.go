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
	dispute       string   // the status of the dispute of each charge; "" if there is none
}

type decline struct{ code, reason, message, param string } // reason is Stripe's decline_code

// Cards that do not exist at Stripe.
const (
	ProcessingCard   = "pm_card_fakeProcessing"   // its payments are processing until Settle
	DeclineLimitCard = "pm_card_fakeDeclineLimit" // was declined too often today, which Stripe reports as an invalid request
)

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
	add(card{}, "visa", "visa_debit", "mastercard", "mastercard_debit", "mastercard_prepaid", "amex", "discover", "diners", "jcb", "unionpay", "us", "de", "fr", "gb", "jp")
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
	add(card{decline: &decline{code: "card_declined", reason: "fraudulent", message: declined}}, "radarBlock")
	add(card{decline: &decline{ // in an account that blocks such payments
		"incorrect_zip", "incorrect_zip", "Your card could not be authorized using the postal code provided. Please " +
			"update the postal code, or contact your card issuer for further details.", "address_zip",
	}}, "avsZipFail")
	add(card{challenge: true}, "authenticationRequired", "authenticationRequiredOnSetup", "threeDSecure2Required")
	add(card{challenge: true, offSession: true}, "authenticationRequiredSetupForOffSession")
	add(card{challenge: true, decline: noFunds}, "authenticationRequiredChargeDeclinedInsufficientFunds")
	add(card{refundFails: true}, "refundFail")
	add(card{refundPending: true}, "pendingRefund")
	add(card{dispute: "needs_response"}, "createDispute")
	add(card{dispute: "warning_needs_response"}, "createDisputeInquiry")
	return cards
}

const declining = "pm_card_fakeDeclined_"

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
