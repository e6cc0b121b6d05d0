package stripetest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A confirmation has the parameters of a confirm, or of a create with confirm=true.
type confirmation struct {
	method        string
	offSession    bool
	errorOnAction bool
	useStripeSDK  bool
	returnURL     string
	receiptEmail  string
}

func readConfirmation(f *form) confirmation {
	return confirmation{
		method:        f.ref("payment_method"),
		offSession:    f.flag("off_session"),
		errorOnAction: f.flag("error_on_requires_action"),
		useStripeSDK:  f.flag("use_stripe_sdk"),
		returnURL:     f.text("return_url", 2048),
		receiptEmail:  f.text("receipt_email", 512),
	}
}

// nextAction is what the customer must do. The content of use_stripe_sdk is for
// Stripe.js only, and Stripe does not document it.
func (c confirmation) nextAction() map[string]any {
	if c.returnURL != "" && !c.useStripeSDK {
		return map[string]any{
			"type": "redirect_to_url",
			"redirect_to_url": map[string]any{
				"return_url": c.returnURL,
				"url":        "https://hooks.stripe.com/redirect/authenticate/standin",
			},
		}
	}
	return map[string]any{
		"type":           "use_stripe_sdk",
		"use_stripe_sdk": map[string]any{"type": "three_d_secure_redirect"},
	}
}

func (s *Server) confirmIntent(c *call) (effect, *apiError) {
	confirmation := readConfirmation(c.form)
	expand := c.form.expands("latest_charge")
	pi, err := s.intentInPath(c)
	if err != nil {
		return nil, err
	}
	if err := s.checkMethod(confirmation.method); err != nil {
		return nil, err
	}
	if pi.AutomaticPaymentMethods.redirects() && confirmation.returnURL == "" {
		return nil, returnURLNeeded()
	}
	c.intent = pi
	return func() (any, *apiError) {
		if err := s.confirm(pi, confirmation); err != nil {
			return nil, err
		}
		return pi.view(expand), nil
	}, nil
}

// confirm charges the card, or waits for the customer to authenticate. An intent that
// is succeeded, processing or canceled cannot be confirmed, so it has at most one
// successful charge.
func (s *Server) confirm(pi *intent, how confirmation) *apiError {
	switch {
	case pi.Status == succeeded:
		return unexpectedState(pi, "You cannot confirm this PaymentIntent because it has already succeeded after "+
			"being previously confirmed.")
	case !slices.Contains(confirmable(), pi.Status):
		return unexpectedState(pi, fmt.Sprintf("You cannot confirm this PaymentIntent because it has a status of %s. "+
			"Only a PaymentIntent with one of the following statuses may be confirmed: %s.",
			pi.Status, strings.Join(confirmable(), ", ")))
	case how.method == "" && pi.PaymentMethod == "":
		return unexpectedState(pi, "You cannot confirm this PaymentIntent because it's missing a payment method. You "+
			"can either update the PaymentIntent with a payment method and then confirm it again, or confirm it "+
			"again directly with a payment method or ConfirmationToken.")
	}
	if how.method == "" {
		how.method = string(pi.PaymentMethod)
	}
	pm, err := s.useMethod(pi, how.method)
	if err != nil {
		return err
	}
	pm.usedBy = pi.ID
	pi.PaymentMethod = optional(pm.ID)
	pi.LastPaymentError = nil
	pi.NextAction = nil
	if how.receiptEmail != "" {
		pi.ReceiptEmail = optional(how.receiptEmail)
	}

	authenticate := pm.card.authenticate == always || pm.card.authenticate == onSession && !how.offSession
	switch {
	case authenticate && how.offSession:
		return s.decline(pi, pm, authenticationRequired("authentication_required"))
	case authenticate && how.errorOnAction:
		return fail(pi, pm, authenticationRequired("authentication_not_handled").failure())
	case authenticate:
		pi.Status = requiresAction
		pi.NextAction = how.nextAction()
		return nil
	case pm.card.processing:
		pi.Status = processing
		pi.Processing = map[string]any{
			"type": "card",
			"card": map[string]any{"customer_notification": map[string]any{
				"approval_requested": false,
				"completes_at":       s.now().Unix() + 26*60*60,
			}},
		}
		return nil
	}
	return s.charge(pi, pm)
}

// charge charges the card.
func (s *Server) charge(pi *intent, pm *paymentMethod) *apiError {
	if pm.card.decline != nil {
		return s.decline(pi, pm, *pm.card.decline)
	}
	ch := s.addCharge(pi, pm)
	ch.Status = succeeded
	ch.Paid = true
	ch.Captured = true
	ch.AmountCaptured = pi.Amount
	ch.Outcome = chargeOutcome{NetworkStatus: "approved_by_network", RiskLevel: "normal", Type: "authorized"}
	pi.Status = succeeded
	pi.AmountReceived = pi.Amount
	pi.NextAction = nil
	pi.Processing = nil
	return nil
}

// decline adds a failed charge, whose id is in the error.
func (s *Server) decline(pi *intent, pm *paymentMethod, d decline) *apiError {
	ch := s.addCharge(pi, pm)
	ch.Status = "failed"
	ch.FailureCode = optional(d.code)
	ch.FailureMessage = optional(d.message)
	ch.Outcome = chargeOutcome{
		NetworkStatus: "declined_by_network", Reason: optional(d.reason), RiskLevel: "normal", Type: "issuer_declined",
	}
	if d.blocked {
		ch.Outcome.NetworkStatus, ch.Outcome.RiskLevel, ch.Outcome.Type = "not_sent_to_network", "highest", "blocked"
	}
	failure := d.failure()
	failure.Charge = ch.ID
	return fail(pi, pm, failure)
}

// fail removes the intent's payment method, so a later confirm cannot succeed.
func fail(pi *intent, pm *paymentMethod, failure *apiError) *apiError {
	failure.PaymentMethod = pm
	pi.Status = requiresPaymentMethod
	pi.PaymentMethod = ""
	pi.LastPaymentError = failure
	pi.NextAction = nil
	pi.Processing = nil

	sent := *failure
	sent.PaymentIntent = pi.view(false)
	return &sent
}

func (d decline) failure() *apiError {
	e := &apiError{
		status:             http.StatusPaymentRequired,
		Type:               "card_error",
		Code:               d.code,
		DeclineCode:        d.reason,
		DocURL:             docURL(d.code),
		Message:            d.message,
		AdviceCode:         d.advice,
		NetworkDeclineCode: d.network,
	}
	if d.param != "" {
		e.Param = &d.param
	}
	return e
}

// Settle ends what is pending at the bank: a payment that is processing, a refund that
// is pending, or a succeeded refund to the card whose refunds fail later. The id is that
// of the payment intent or refund. It is an error if nothing is pending.
func (s *Server) Settle(id string, success bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if re, ok := s.refunds.get(id); ok {
		pi, _ := s.intents.get(re.PaymentIntent)
		return cmp.Or(s.settleRefund(re, success), s.save(pi, nil))
	}
	pi, ok := s.intents.get(id)
	if !ok || pi.Status != processing {
		return fmt.Errorf("stripetest: %s is not open to be settled", id)
	}
	pm, _ := s.methods.get(string(pi.PaymentMethod))
	if success {
		_ = s.charge(pi, pm) // a decline is in the intent
	} else {
		_ = s.decline(pi, pm, decline{code: "card_declined", reason: "generic_decline", message: declinedMessage})
	}
	return s.save(pi, nil)
}
