package stripetest

import (
	"fmt"
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
		d.set(status)
		eventType := "charge.dispute.updated"
		if slices.Contains([]string{"won", "lost", "warning_closed", "prevented"}, status) {
			eventType = "charge.dispute.closed"
		}
		s.emit(eventType, *d, d.IntentID)
		return nil
	})
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
