package stripetest

import "net/http"

// addCharge adds a charge. The caller sets its outcome.
func (s *Server) addCharge(pi *intent, pm *paymentMethod) *charge {
	details := pm.card.details()
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
		PaymentMethodDetails: map[string]any{
			"type": "card",
			"card": details,
		},
		ReceiptEmail: pi.ReceiptEmail,
		card:         pm.card,
	}
	s.charges.add(ch)
	pi.latest = ch
	return ch
}

func (s *Server) getCharge(c *call) (effect, *apiError) {
	if err := c.form.done(); err != nil {
		return nil, err
	}
	ch, ok := s.charges.get(c.id)
	if !ok {
		return nil, missing(http.StatusNotFound, "id", "charge", c.id)
	}
	return func() (any, *apiError) { return ch, nil }, nil
}

func (s *Server) listCharges(c *call) (effect, *apiError) {
	intentID := c.form.ref("payment_intent")
	if _, ok := s.intents.get(intentID); intentID != "" && !ok {
		return nil, missing(http.StatusBadRequest, "payment_intent", "payment_intent", intentID)
	}
	return listPage(c, &s.charges, func(ch *charge) bool {
		return intentID == "" || ch.PaymentIntent == intentID
	}, asIs)
}
