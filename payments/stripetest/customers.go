package stripetest

import (
	"fmt"
	"net/http"
)

func (s *Server) createCustomer(c *call) (effect, *apiError) {
	email := c.form.text("email", 512)
	name := c.form.text("name", 256)
	description := c.form.text("description", 350)
	metadata := c.form.metadata()
	if err := c.form.done(); err != nil {
		return nil, err
	}
	return func() (any, *apiError) {
		cus := &customer{
			ID:          newID("cus_", 14),
			Object:      "customer",
			Created:     s.now().Unix(),
			Description: optional(description),
			Email:       optional(email),
			Metadata:    metadata,
			Name:        optional(name),
		}
		s.customers.add(cus)
		return cus, nil
	}, nil
}

func (s *Server) getCustomer(c *call) (effect, *apiError) {
	if err := c.form.done(); err != nil {
		return nil, err
	}
	cus, ok := s.customers.get(c.id)
	if !ok {
		return nil, missing(http.StatusNotFound, "id", "customer", c.id)
	}
	return func() (any, *apiError) { return cus, nil }, nil
}

// getMethod reads a payment method. A test name stands for a new one each
// time, at Stripe too.
func (s *Server) getMethod(c *call) (effect, *apiError) {
	if err := c.form.done(); err != nil {
		return nil, err
	}
	if err := s.checkMethod(c.id); err != nil {
		err.status = http.StatusNotFound
		return nil, err
	}
	return func() (any, *apiError) { return s.findMethod(c.id), nil }, nil
}

func (s *Server) attachMethod(c *call) (effect, *apiError) {
	c.form.require("customer")
	customerID := c.form.ref("customer")
	if err := c.form.done(); err != nil {
		return nil, err
	}
	if err := s.checkMethod(c.id); err != nil {
		err.status = http.StatusNotFound
		return nil, err
	}
	if _, ok := s.customers.get(customerID); !ok {
		return nil, missing(http.StatusBadRequest, "customer", "customer", customerID)
	}
	return func() (any, *apiError) {
		pm := s.findMethod(c.id)
		switch {
		case pm.Customer != "":
			return nil, invalidRequest(http.StatusBadRequest, "", "",
				"The payment method you provided has already been attached to a customer.")
		case pm.usedBy != "":
			return nil, spent()
		case pm.card.decline != nil && !pm.card.savable:
			refused := pm.card.decline.failure()
			refused.Param = new("")
			return nil, refused
		}
		pm.Customer = optional(customerID)
		return pm, nil
	}, nil
}

// checkMethod refuses an id that names no payment method; none at all is fine.
func (s *Server) checkMethod(id string) *apiError {
	_, known := s.methods.get(id)
	_, named := s.cards[id]
	if id == "" || known || named {
		return nil
	}
	return missing(http.StatusBadRequest, "payment_method", "PaymentMethod", id)
}

// findMethod returns the payment method of a checked id. A test name such as
// pm_card_visa makes a new one, so it is never spent.
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

// useMethod finds the payment method for an intent and applies Stripe's rules
// for reuse: one with a customer is that customer's, one without serves a
// single intent.
func (s *Server) useMethod(pi *intent, id string) (*paymentMethod, *apiError) {
	pm := s.findMethod(id)
	switch {
	case pm.Customer != "" && pm.Customer != pi.Customer:
		return nil, invalidRequest(http.StatusBadRequest, "", "payment_method", fmt.Sprintf(
			"The PaymentMethod %s is attached to a Customer and can only be used with that customer.", pm.ID))
	case pm.Customer == "" && pm.usedBy != "" && pm.usedBy != pi.ID:
		return nil, spent()
	}
	return pm, nil
}

func spent() *apiError {
	return invalidRequest(http.StatusBadRequest, "", "",
		"The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared with "+
			"a connected account without Customer attachment, or was detached from a Customer. It may not be used "+
			"again. To use a PaymentMethod multiple times, you must attach it to a Customer first.")
}
