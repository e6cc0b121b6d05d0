package stripetest

import "net/http"

// checkMethod rejects an id that names no payment method. An empty id is valid.
func (s *Server) checkMethod(id string) *apiError {
	_, known := s.methods.get(id)
	_, named := s.cards[id]
	if id == "" || known || named {
		return nil
	}
	return missing(http.StatusBadRequest, "payment_method", "PaymentMethod", id)
}

// findMethod returns the payment method of a checked id. A test name such as
// pm_card_visa creates a new one each time, as at Stripe.
func (s *Server) findMethod(id string) *paymentMethod {
	if pm, ok := s.methods.get(id); ok {
		return pm
	}
	c := s.cards[id]
	pm := &paymentMethod{
		ID:       newID("pm_1", 23),
		Object:   "payment_method",
		Card:     c.details(),
		Created:  s.now().Unix(),
		Metadata: map[string]string{},
		Type:     "card",
		card:     c,
	}
	s.methods.add(pm)
	return pm
}

// useMethod returns the payment method for an intent. Without a customer, which the
// stand-in does not have, it can be used for one intent only.
func (s *Server) useMethod(pi *intent, id string) (*paymentMethod, *apiError) {
	pm := s.findMethod(id)
	if pm.usedBy != "" && pm.usedBy != pi.ID {
		return nil, invalidRequest(http.StatusBadRequest, "", "",
			"The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared with "+
				"a connected account without Customer attachment, or was detached from a Customer. It may not be used "+
				"again. To use a PaymentMethod multiple times, you must attach it to a Customer first.")
	}
	return pm, nil
}
