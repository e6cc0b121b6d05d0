package stripetest

import "net/http"

// checkMethod rejects an unknown payment method. An empty id is valid.
func (s *Server) checkMethod(id string) *apiError {
	_, known := s.methods.get(id)
	_, named := s.cards[id]
	if id == "" || known || named {
		return nil
	}
	return missing(http.StatusBadRequest, "payment_method", "PaymentMethod", id)
}

// useMethod returns the payment method for an intent. A test name such as pm_card_visa
// creates a new one. Without a customer it is valid for one intent only.
func (s *Server) useMethod(pi *intent, id string) (*paymentMethod, *apiError) {
	pm, ok := s.methods.get(id)
	if !ok {
		pm = &paymentMethod{ID: newID("pm_1", 23), CardName: id, card: s.cards[id]}
		s.methods.add(pm)
	}
	if pm.UsedBy != "" && pm.UsedBy != pi.ID {
		return nil, invalidRequest(http.StatusBadRequest, "", "",
			"The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared with "+
				"a connected account without Customer attachment, or was detached from a Customer. It may not be used "+
				"again. To use a PaymentMethod multiple times, you must attach it to a Customer first.")
	}
	return pm, nil
}
