package stripetest

import (
	"cmp"
	"fmt"
	"net/http"
)

type confirmation struct {
	method     string
	offSession bool
	returnURL  string // of a customer who is redirected; "" if Stripe.js handles the action
}

func readConfirmation(f *form) confirmation {
	how := confirmation{method: f.text("payment_method"), offSession: f.flag("off_session"), returnURL: f.text("return_url")}
	if f.flag("use_stripe_sdk") {
		how.returnURL = ""
	}
	return how
}

func (s *Server) confirmIntent(c *call) (effect, *apiError) {
	how := readConfirmation(c.form)
	pi, err := s.intentInPath(c)
	if err != nil {
		return nil, err
	}
	if pi.Status == succeeded { // the key stays unused, unlike that of other states
		return nil, unexpectedState(pi, "confirm")
	}
	if err := s.checkMethod(how.method); err != nil {
		return nil, err
	}
	if pi.AutomaticPaymentMethods.redirects() && !c.form.values.Has("return_url") {
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

// confirm requires a status in which the intent has no successful charge.
func (s *Server) confirm(pi *intent, how confirmation) *apiError {
	switch {
	case !confirmable(pi) && how.method != "":
		return methodFixed(pi)
	case !confirmable(pi), how.method == "" && pi.PaymentMethod == "":
		return unexpectedState(pi, "confirm")
	}
	pm, err := s.useMethod(pi, cmp.Or(how.method, string(pi.PaymentMethod)))
	if err != nil {
		return err
	}
	card, _ := findCard(pm.CardName)
	if card.declineLimit {
		return declineLimitExceeded()
	}
	pm.UsedBy = pi.ID
	pi.PaymentMethod = optional(pm.ID)
	pi.LastPaymentError = nil
	pi.NextAction = nil

	switch {
	case card.challenge && how.offSession && !card.offSession:
		return s.decline(pi, pm, &decline{
			code: "authentication_required", reason: "authentication_required",
			message: "Your card was declined. This transaction requires authentication.",
		})
	case card.challenge && !how.offSession:
		pi.Status = requiresAction
		pi.NextAction = nextAction(pi, card.action, how.returnURL)
		return nil
	case card.processing:
		pi.Status = processing
		return nil
	}
	return s.charge(pi, pm)
}

// nextAction returns the action of 3-D Secure, or one of another type without details.
func nextAction(pi *intent, actionType, returnURL string) map[string]any {
	details := map[string]any{}
	switch {
	case actionType == "" && returnURL != "":
		actionType, details = "redirect_to_url", map[string]any{"return_url": returnURL, "url": "https://hooks.stripe.com/fake/" + pi.ID}
	case actionType == "":
		actionType, details = "use_stripe_sdk", map[string]any{"type": "three_d_secure_redirect"} // undocumented, for Stripe.js only
	}
	return map[string]any{"type": actionType, actionType: details}
}

func (s *Server) charge(pi *intent, pm *paymentMethod) *apiError {
	card, _ := findCard(pm.CardName)
	if card.decline != nil {
		return s.decline(pi, pm, card.decline)
	}
	ch := s.addCharge(pi, pm)
	ch.Status = succeeded
	pi.Status = succeeded
	pi.AmountReceived = pi.Amount
	pi.NextAction = nil
	status := "needs_response"
	if card.inquiry {
		status = "warning_needs_response"
	}
	for _, reason := range card.disputes {
		s.addDispute(ch, ch.Amount, reason, status)
	}
	return nil
}

func (s *Server) decline(pi *intent, pm *paymentMethod, d *decline) *apiError {
	ch := s.addCharge(pi, pm)
	ch.Status = "failed"
	ch.FailureCode = optional(d.code)
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

func (s *Server) addCharge(pi *intent, pm *paymentMethod) *Charge {
	ch := &Charge{
		ID:            newID("ch_3", 23),
		Object:        "charge",
		Amount:        pi.Amount,
		Created:       s.now().Unix(),
		Currency:      pi.Currency,
		Metadata:      pi.Metadata,
		IntentID:      pi.ID,
		PaymentMethod: pm.ID,
		OrderID:       pi.Metadata["order_id"],
	}
	s.charges.put(ch)
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

// Settle decides a processing payment, a pending refund, or a succeeded one that fails later.
func (s *Server) Settle(id string, success bool) error {
	s.mu.Lock()
	re, isRefund := s.refunds.byID[id]
	s.mu.Unlock()
	if isRefund {
		return s.change(re.IntentID, func(*intent) error { return s.settleRefund(re, success) })
	}
	return s.change(id, func(pi *intent) error {
		pm := s.methods.byID[string(pi.PaymentMethod)]
		switch {
		case pi.Status != processing:
			return fmt.Errorf("stripetest: %s is not pending", id)
		case success:
			_ = s.charge(pi, pm) // a decline is in the intent
		default:
			_ = s.decline(pi, pm, genericDecline())
		}
		return nil
	})
}
