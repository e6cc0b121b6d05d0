package stripetest

import (
	"fmt"
	"net/http"
)

// Authenticate ends the 3-D Secure challenge of an intent. An approved card may be declined.
func (s *Server) Authenticate(id string, approve bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi, err := s.unlocked(id)
	switch {
	case err != nil:
		return err
	case pi.Status != requiresAction:
		return fmt.Errorf("stripetest: %s has no challenge: its status is %s", id, pi.Status)
	}
	pm := s.methods.byID[string(pi.PaymentMethod)]
	if approve {
		_ = s.charge(pi, pm) // a decline is in the intent
		return s.save(pi, nil)
	}
	_ = fail(pi, invalidRequest(http.StatusBadRequest, "payment_intent_authentication_failure", "",
		"The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new "+
			"PaymentMethod to attempt to fulfill this PaymentIntent again."))
	return s.save(pi, nil)
}

// ConfirmAsCustomer confirms an intent as Stripe.js does with the client secret.
func (s *Server) ConfirmAsCustomer(id, paymentMethod string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi, err := s.unlocked(id)
	if err != nil {
		return err
	}
	refused := s.checkMethod(paymentMethod)
	if refused == nil {
		refused = s.confirm(pi, confirmation{method: paymentMethod})
	}
	unsaved := s.save(pi, nil) // a decline is a change, too
	if refused != nil {
		return fmt.Errorf("stripetest: %s cannot be confirmed: %s", id, refused.Message)
	}
	return unsaved
}

func (s *Server) unlocked(id string) (*intent, error) {
	pi, ok := s.intents.byID[id]
	switch {
	case !ok:
		return nil, fmt.Errorf("stripetest: no payment intent %s", id)
	case pi.busy:
		return nil, fmt.Errorf("stripetest: %s is locked by a request", id)
	}
	return pi, nil
}

// actAsCustomer returns a handler for Authenticate, whose credential is the client_secret.
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
