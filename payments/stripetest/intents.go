package stripetest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
)

// Statuses of an intent. Capture is automatic, so there is no requires_capture.
const (
	requiresPaymentMethod = "requires_payment_method"
	requiresConfirmation  = "requires_confirmation"
	requiresAction        = "requires_action"
	processing            = "processing"
	succeeded             = "succeeded"
	canceled              = "canceled"
)

func confirmable(pi *intent) bool {
	return pi.Status == requiresPaymentMethod || pi.Status == requiresConfirmation || pi.Status == requiresAction
}

func (s *Server) createIntent(c *call) (effect, *apiError) {
	f := c.form
	f.require("amount")
	f.require("currency")
	amount, _ := f.integer("amount")
	currencyCode := f.text("currency")
	confirm := f.flag("confirm")
	how := readConfirmation(f)
	description := f.text("description")
	metadata := f.metadata()
	automatic := readAutomaticMethods(f)
	if !confirm && (how.offSession || f.values.Has("use_stripe_sdk") || f.values.Has("return_url")) {
		f.fail("", "confirm", "off_session, use_stripe_sdk and return_url can only be set when confirm is true.")
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := checkAmount(amount, currencyCode); err != nil {
		return nil, err
	}
	if err := s.checkMethod(how.method); err != nil {
		return nil, err
	}
	if confirm && automatic.redirects() && !f.values.Has("return_url") {
		return nil, returnURLNeeded()
	}

	return func() (any, *apiError) {
		pi := &intent{
			ID:                      newID("pi_3", 23),
			Object:                  "payment_intent",
			Amount:                  amount,
			AutomaticPaymentMethods: automatic,
			Created:                 s.now().Unix(),
			Currency:                currencyCode,
			Description:             optional(description),
			Metadata:                metadata,
			Status:                  requiresPaymentMethod,
		}
		pi.ClientSecret = newID(pi.ID+"_secret_", 25)
		if how.method != "" {
			pm, err := s.useMethod(pi, how.method)
			if err != nil {
				return nil, err
			}
			pi.PaymentMethod = optional(pm.ID)
			pi.Status = requiresConfirmation
		}
		s.putIntent(pi)
		c.intent = pi
		if confirm {
			how.method = ""
			if err := s.confirm(pi, how); err != nil {
				return nil, err
			}
		}
		return pi, nil
	}, nil
}

func readAutomaticMethods(f *form) *automaticMethods {
	f.choice("automatic_payment_methods[enabled]", "true")
	redirects := f.choice("automatic_payment_methods[allow_redirects]", "always", "never")
	if redirects != "" {
		f.require("automatic_payment_methods[enabled]")
	}
	if f.choice("payment_method_types[0]", "card") != "" {
		return nil
	}
	return &automaticMethods{Enabled: true, AllowRedirects: cmp.Or(redirects, "always")}
}

func (a *automaticMethods) redirects() bool {
	return a != nil && a.AllowRedirects != "never"
}

func (s *Server) getIntent(c *call) (effect, *apiError) {
	pi, err := s.intentInPath(c)
	if err != nil {
		return nil, err
	}
	return func() (any, *apiError) { return pi, nil }, nil
}

// updateIntent changes the metadata only, which a search does not show. An empty value removes a member.
func (s *Server) updateIntent(c *call) (effect, *apiError) {
	changed := c.form.metadata()
	pi, err := s.intentInPath(c)
	if err != nil {
		return nil, err
	}
	c.intent = pi
	return func() (any, *apiError) {
		pi.Metadata = maps.Clone(pi.Metadata)
		maps.DeleteFunc(pi.Metadata, func(name, _ string) bool { return c.form.values.Has("metadata[" + name + "]") })
		maps.Copy(pi.Metadata, changed)
		return pi, nil
	}, nil
}

func (s *Server) cancelIntent(c *call) (effect, *apiError) {
	reason := c.form.choice("cancellation_reason", "duplicate", "fraudulent", "requested_by_customer", "abandoned")
	pi, err := s.intentInPath(c)
	if err != nil {
		return nil, err
	}
	c.intent = pi
	return func() (any, *apiError) {
		if !confirmable(pi) && pi.Status != processing { // which Stripe can rarely cancel
			return nil, unexpectedState(pi, "cancel")
		}
		now := s.now().Unix()
		pi.Status = canceled
		pi.CanceledAt, pi.CancellationReason = &now, optional(reason)
		pi.NextAction = nil
		return pi, nil
	}, nil
}

func (s *Server) intentInPath(c *call) (*intent, *apiError) {
	if err := c.form.done(); err != nil {
		return nil, err
	}
	pi, ok := s.intents.byID[c.id]
	if !ok {
		return nil, missing(http.StatusNotFound, "intent", "payment_intent", c.id)
	}
	return pi, nil
}

func unexpectedState(pi *intent, action string) *apiError {
	e := invalidRequest(http.StatusBadRequest, "payment_intent_unexpected_state", "", fmt.Sprintf(
		"You cannot %s this PaymentIntent because it has a status of %s.", action, pi.Status))
	e.PaymentIntent = pi
	return e
}

// methodFixed is the error of a confirm with a payment method.
func methodFixed(pi *intent) *apiError {
	e := unexpectedState(pi, "confirm")
	e.Param = "payment_method"
	e.Message = fmt.Sprintf("This PaymentIntent's payment_method could not be updated because it has a status of %s. You may only "+
		"update the payment_method of a PaymentIntent with one of the following statuses: requires_payment_method, "+
		"requires_confirmation, requires_action.", pi.Status)
	return e
}

func returnURLNeeded() *apiError {
	return invalidRequest(http.StatusBadRequest, "", "return_url",
		"This PaymentIntent is configured to accept payment methods enabled in your Dashboard. Because some of these "+
			"payment methods might redirect your customer off of your page, you must provide a `return_url`. If you "+
			"don't want to accept redirect-based payment methods, set `automatic_payment_methods[enabled]` to `true` "+
			"and `automatic_payment_methods[allow_redirects]` to `never` when creating Payment Intents.")
}

// checkAmount has the limits of an account that settles in the payment's currency.
func checkAmount(amount int64, code string) *apiError {
	limits, known := findCurrency(code)
	switch {
	case !known:
		return invalidRequest(http.StatusBadRequest, "", "currency", "Invalid currency: "+code+".")
	case amount < 1:
		return invalidRequest(http.StatusBadRequest, "parameter_invalid_integer", "amount",
			"The amount must be greater than or equal to the minimum charge amount allowed for your account and "+
				"the currency set.")
	case amount < limits.minimum:
		return invalidRequest(http.StatusBadRequest, "amount_too_small", "amount",
			"Amount must be at least "+formatAmount(code, limits.minimum))
	case amount > limits.maximum:
		return invalidRequest(http.StatusBadRequest, "amount_too_large", "amount",
			"Amount must be no more than "+formatAmount(code, limits.maximum))
	}
	return checkStep(amount, code)
}

func checkStep(amount int64, code string) *apiError {
	if limits, _ := findCurrency(code); amount%limits.step != 0 {
		return invalidRequest(http.StatusBadRequest, "parameter_invalid_integer", "amount", fmt.Sprintf("Invalid integer: %d", amount))
	}
	return nil
}
