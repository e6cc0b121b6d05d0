package stripetest

import (
	"fmt"
	"net/http"
	"slices"
)

func (s *Server) addDispute(ch *Charge, amount int64, reason, status string) *Dispute {
	d := &Dispute{
		ID:       newID("dp_1", 23),
		Object:   "dispute",
		Amount:   amount,
		Charge:   ch.ID,
		Created:  s.now().Unix(),
		Currency: ch.Currency,
		Metadata: map[string]string{},
		IntentID: ch.IntentID,
		Reason:   reason,
	}
	d.set(status)
	s.disputes.put(d)
	s.emit("charge.dispute.created", *d, d.IntentID)
	return d
}

// Dispute disputes an amount of a charged intent.
func (s *Server) Dispute(intentID string, amount int64, reason, status string) (id string, err error) {
	err = s.change(intentID, func(pi *intent) error {
		if pi.Status != succeeded {
			return fmt.Errorf("stripetest: %s has no charge", intentID)
		}
		id = s.addDispute(s.charges.byID[string(pi.LatestCharge)], amount, reason, status).ID
		return nil
	})
	return id, err
}

// UpdateDispute sets the status of a dispute, in any order.
func (s *Server) UpdateDispute(id, status string) error {
	s.mu.Lock()
	d, ok := s.disputes.byID[id]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("stripetest: no dispute %s", id)
	}
	return s.change(d.IntentID, func(*intent) error {
		s.setDispute(d, status)
		return nil
	})
}

func (s *Server) setDispute(d *Dispute, status string) {
	d.set(status)
	eventType := "charge.dispute.updated"
	if slices.Contains([]string{"won", "lost", "warning_closed", "prevented"}, status) {
		eventType = "charge.dispute.closed"
	}
	s.emit(eventType, *d, d.IntentID)
}

// respondToDispute is the seller's evidence. Its text decides at once, as in Stripe's test mode
// (https://docs.stripe.com/testing#evidence).
func (s *Server) respondToDispute(c *call) (effect, *apiError) {
	c.form.flag("submit")
	switch c.form.text("evidence[uncategorized_text]") {
	case "winning_evidence":
		return s.endDispute(c, "won")
	case "losing_evidence":
		return s.endDispute(c, "lost")
	default:
		return s.endDispute(c, "under_review")
	}
}

// acceptDispute gives the money to the customer.
func (s *Server) acceptDispute(c *call) (effect, *apiError) { return s.endDispute(c, "lost") }

func (s *Server) endDispute(c *call, status string) (effect, *apiError) {
	if err := c.form.done(); err != nil {
		return nil, err
	}
	d, ok := s.disputes.byID[c.id]
	if !ok {
		return nil, missing(http.StatusNotFound, "dispute", "dispute", c.id)
	}
	switch {
	case d.Status == "needs_response":
	case d.Status == "warning_needs_response" && status == "under_review":
		status = "warning_under_review"
	case d.Status == "warning_needs_response":
		status = "warning_closed"
	default:
		return nil, invalidRequest(http.StatusBadRequest, "", "", "This dispute does not need a response: it is "+d.Status+".")
	}
	c.intent = s.intents.byID[d.IntentID]
	return func() (any, *apiError) {
		s.setDispute(d, status)
		return d, nil
	}, nil
}

// chargedBack reports whether a dispute has withdrawn the money of a charge.
func (s *Server) chargedBack(charge string) bool {
	return slices.ContainsFunc(s.disputes.all(), func(d *Dispute) bool { return d.Charge == charge && !d.Refundable })
}

// Disputes returns all disputes, oldest first.
func (s *Server) Disputes() []Dispute {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copies(s.disputes.all())
}

func (s *Server) listDisputes(c *call) (effect, *apiError) {
	intentID := c.form.text("payment_intent")
	return listPage(c, &s.disputes, func(d *Dispute) bool { return intentID == "" || d.IntentID == intentID })
}
