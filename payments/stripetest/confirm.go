package stripetest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

type confirmation struct {
	method     string
	offSession bool
}

func readConfirmation(f *form) confirmation {
	f.flag("use_stripe_sdk") // the default here, because there is no return_url
	return confirmation{method: f.ref("payment_method"), offSession: f.flag("off_session")}
}

func (s *Server) confirmIntent(c *call) (effect, *apiError) {
	how := readConfirmation(c.form)
	pi, err := s.intentInPath(c)
	if err != nil {
		return nil, err
	}
	if err := s.checkMethod(how.method); err != nil {
		return nil, err
	}
	if pi.AutomaticPaymentMethods.redirects() {
		return nil, returnURLNeeded()
	}
	c.intent = pi
	return func() (any, *apiError) {
		if err := s.confirm(pi, how); err != nil {
			return nil, err
		}
		return pi, nil
	}, nil
}

// confirm charges the card, or waits for the customer to authenticate. Only confirmable
// statuses are accepted, so an intent has at most one successful charge.
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
	pm, err := s.useMethod(pi, cmp.Or(how.method, string(pi.PaymentMethod)))
	if err != nil {
		return err
	}
	pm.UsedBy = pi.ID
	pi.PaymentMethod = optional(pm.ID)
	pi.LastPaymentError = nil
	pi.NextAction = nil

	authenticate := pm.card.authenticate == always || pm.card.authenticate == onSession && !how.offSession
	switch {
	case authenticate && how.offSession:
		return s.decline(pi, pm, &decline{
			code: "authentication_required", reason: "authentication_required",
			message: "Your card was declined. This transaction requires authentication.",
		})
	case authenticate:
		pi.Status = requiresAction
		pi.NextAction = map[string]any{
			"type":           "use_stripe_sdk",
			"use_stripe_sdk": map[string]any{"type": "three_d_secure_redirect"}, // undocumented, for Stripe.js only
		}
		return nil
	case pm.card.processing:
		pi.Status = processing
		return nil
	}
	return s.charge(pi, pm)
}

func (s *Server) charge(pi *intent, pm *paymentMethod) *apiError {
	if pm.card.decline != nil {
		return s.decline(pi, pm, pm.card.decline)
	}
	ch := s.addCharge(pi, pm)
	ch.Status = succeeded
	ch.Paid = true
	pi.Status = succeeded
	pi.AmountReceived = pi.Amount
	pi.NextAction = nil
	return nil
}

func (s *Server) decline(pi *intent, pm *paymentMethod, d *decline) *apiError {
	ch := s.addCharge(pi, pm)
	ch.Status = "failed"
	ch.FailureCode = optional(d.code)
	ch.FailureMessage = optional(d.message)
	return fail(pi, &apiError{
		status:      http.StatusPaymentRequired,
		Type:        "card_error",
		Charge:      ch.ID,
		Code:        d.code,
		DeclineCode: d.reason,
		Message:     d.message,
		Param:       d.param,
	})
}

func (s *Server) addCharge(pi *intent, pm *paymentMethod) *charge {
	ch := &charge{
		ID:            newID("ch_3", 23),
		Object:        "charge",
		Amount:        pi.Amount,
		Created:       s.now().Unix(),
		Currency:      pi.Currency,
		Description:   pi.Description,
		Metadata:      pi.Metadata,
		PaymentIntent: pi.ID,
		PaymentMethod: pm.ID,
		card:          pm.card,
	}
	s.charges.add(ch)
	pi.latest = ch
	pi.LatestCharge = optional(ch.ID)
	return ch
}

// fail removes the intent's payment method, so a later confirm cannot succeed.
func fail(pi *intent, failure *apiError) *apiError {
	pi.Status = requiresPaymentMethod
	pi.PaymentMethod = ""
	pi.LastPaymentError = failure
	pi.NextAction = nil

	sent := *failure
	sent.PaymentIntent = pi
	return &sent
}

// Settle ends what is pending at the bank: a processing payment, a pending refund, or a
// succeeded refund that fails later. The id is that of the intent or refund.
func (s *Server) Settle(id string, success bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if re, ok := s.refunds.get(id); ok {
		pi, _ := s.intents.get(re.PaymentIntent)
		return cmp.Or(s.settleRefund(re, success), s.save(pi, nil))
	}
	pi, ok := s.intents.get(id)
	if !ok || pi.Status != processing {
		return fmt.Errorf("stripetest: %s is not pending", id)
	}
	pm, _ := s.methods.get(string(pi.PaymentMethod))
	if success {
		_ = s.charge(pi, pm) // a decline is in the intent
	} else {
		_ = s.decline(pi, pm, genericDecline())
	}
	return s.save(pi, nil)
}
