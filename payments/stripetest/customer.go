package stripetest

import (
	_ "embed"
	"fmt"
	"net/http"
)

// Authenticate ends the 3-D Secure challenge of an intent. An approved card may be declined.
func (s *Server) Authenticate(id string, approve bool) error {
	return s.change(id, func(pi *intent) error {
		if pi.Status != requiresAction {
			return fmt.Errorf("stripetest: %s has no challenge: its status is %s", id, pi.Status)
		}
		if approve {
			_ = s.charge(pi, s.methods.byID[string(pi.PaymentMethod)]) // a decline is in the intent
			return nil
		}
		_ = fail(pi, invalidRequest(http.StatusBadRequest, "payment_intent_authentication_failure", "",
			"The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new "+
				"PaymentMethod to attempt to fulfill this PaymentIntent again."))
		return nil
	})
}

// ConfirmAsCustomer confirms an intent as Stripe.js does with the client secret.
func (s *Server) ConfirmAsCustomer(id, paymentMethod string) error {
	return s.change(id, func(pi *intent) error {
		refused := s.checkMethod(paymentMethod)
		if refused == nil {
			refused = s.confirm(pi, confirmation{method: paymentMethod})
		}
		if refused != nil {
			return fmt.Errorf("stripetest: %s cannot be confirmed: %s", id, refused.Message)
		}
		return nil
	})
}

// ReplaceMethod replaces the payment method of an intent without confirming it, as any program with a
// secret key of the account can.
func (s *Server) ReplaceMethod(id, paymentMethod string) error {
	return s.change(id, func(pi *intent) error {
		pm, refused := s.useMethod(pi, paymentMethod)
		if refused != nil || !confirmable(pi) {
			return fmt.Errorf("stripetest: the payment method of %s cannot be replaced", id)
		}
		pi.Status, pi.PaymentMethod = requiresConfirmation, optional(pm.ID)
		pi.LastPaymentError, pi.NextAction = nil, nil
		return nil
	})
}

// change changes an intent outside of a request. A decline is a change, too.
func (s *Server) change(id string, act func(*intent) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi, ok := s.intents.byID[id]
	switch {
	case !ok:
		return fmt.Errorf("stripetest: no payment intent %s", id)
	case pi.busy:
		return fmt.Errorf("stripetest: %s is locked by a request", id)
	}
	if err := act(pi); err != nil {
		return err
	}
	return s.save(pi, nil)
}

// actAsCustomer requires the client_secret.
func (s *Server) actAsCustomer(approve bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*") // for Stripe.js on any page
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		s.mu.Lock()
		pi, ok := s.intents.byID[r.PathValue("id")]
		s.mu.Unlock()
		if !ok || r.PostFormValue("client_secret") != pi.ClientSecret {
			http.Error(w, "stripetest: no payment intent with this id and client_secret", http.StatusNotFound)
			return
		}
		if err := s.Authenticate(pi.ID, approve); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

//go:embed stripe.js
var stripeJS []byte

func serveStripeJS(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(stripeJS) // fails only if the browser is gone
}
