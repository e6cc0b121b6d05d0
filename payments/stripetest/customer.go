package stripetest

import (
	"crypto/subtle"
	"fmt"
	"net/http"
)

// Authenticate ends the 3-D Secure challenge of an intent, as its customer does. After
// an approval the card is charged, which it may decline. After an error nothing has
// changed.
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
	pm, _ := s.methods.get(string(pi.PaymentMethod))
	if approve {
		_ = s.charge(pi, pm) // a decline is in the intent
		return s.save(pi, nil)
	}
	_ = fail(pi, invalidRequest(http.StatusBadRequest, "payment_intent_authentication_failure", "",
		"The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new "+
			"PaymentMethod to attempt to fulfill this PaymentIntent again."))
	return s.save(pi, nil)
}

// ConfirmAsCustomer confirms an intent on-session with the client secret, as Stripe.js
// does, also after a decline. An empty payment method means that of the intent. After
// an error the card was not charged.
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
	pi, ok := s.intents.get(id)
	switch {
	case !ok:
		return nil, fmt.Errorf("stripetest: no payment intent %s", id)
	case pi.busy:
		return nil, fmt.Errorf("stripetest: %s is locked by a request", id)
	}
	return pi, nil
}

// actAsCustomer returns a handler that approves or declines a challenge. Its credential
// is the client_secret in the body, as for Stripe.js.
func (s *Server) actAsCustomer(approve bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		id := r.PathValue("id")
		if !s.hasSecret(id, r.PostFormValue("client_secret")) {
			http.Error(w, "stripetest: no payment intent with this id and client_secret", http.StatusNotFound)
			return
		}
		if err := s.Authenticate(id, approve); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) hasSecret(id, secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pi, ok := s.intents.get(id)
	return ok && subtle.ConstantTimeCompare([]byte(pi.ClientSecret), []byte(secret)) == 1
}
