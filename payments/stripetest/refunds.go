package stripetest

import (
	"fmt"
	"maps"
	"net/http"
	"time"
)

const makeRefund = "POST /v1/refunds"

func (s *Server) createRefund(c *call) (effect, *apiError) {
	f := c.form
	intentID := f.text("payment_intent")
	f.require("payment_intent")
	amount, partial := f.integer("amount")
	if partial && amount < 1 {
		f.fail("parameter_invalid_integer", "amount", "This value must be greater than or equal to 1.")
	}
	reason := f.choice("reason", "duplicate", "fraudulent", "requested_by_customer")
	metadata := f.metadata()
	if err := f.done(); err != nil {
		return nil, err
	}
	pi, ok := s.intents.byID[intentID]
	if !ok {
		return nil, missing(http.StatusBadRequest, "payment_intent", "payment_intent", intentID)
	}

	c.intent = pi
	return func() (any, *apiError) {
		re, err := s.refund(pi, amount, reason, metadata)
		if err != nil {
			return nil, err
		}
		return re, nil
	}, nil
}

// refund refunds an amount of an intent, or what is left of it if the amount is 0.
func (s *Server) refund(pi *intent, amount int64, reason string, metadata map[string]string) (*Refund, *apiError) {
	if pi.Status != succeeded {
		return nil, invalidRequest(http.StatusBadRequest, "", "",
			fmt.Sprintf("This PaymentIntent (%s) does not have a successful charge to refund.", pi.ID))
	}
	ch := s.charges.byID[string(pi.LatestCharge)]
	left := ch.Amount - ch.Refunded
	if s.chargedBack(ch.ID) {
		return nil, invalidRequest(http.StatusBadRequest, "charge_disputed", "",
			fmt.Sprintf("Charge %s has been charged back; cannot issue a refund.", ch.ID))
	}
	if left == 0 {
		return nil, invalidRequest(http.StatusBadRequest, "charge_already_refunded", "",
			fmt.Sprintf("Charge %s has already been refunded.", ch.ID))
	}
	if amount == 0 {
		amount = left
	}
	if err := checkStep(amount, ch.Currency); err != nil {
		return nil, err
	}
	if amount > left {
		return nil, invalidRequest(http.StatusBadRequest, "", "amount",
			fmt.Sprintf("Refund amount (%s) is greater than unrefunded amount on charge (%s)",
				formatAmount(ch.Currency, amount), formatAmount(ch.Currency, left)))
	}
	re := &Refund{
		ID:       newID("re_3", 23),
		Object:   "refund",
		Amount:   amount,
		Charge:   ch.ID,
		Created:  s.now().Unix(),
		Currency: ch.Currency,
		Metadata: metadata,
		IntentID: pi.ID,
		Reason:   optional(reason),
		Status:   succeeded,
		Name:     metadata["refund_id"],
	}
	if s.cardOf(ch).refundPending {
		re.Status = "pending"
	}
	s.refunds.put(re)
	ch.Refunded += amount
	s.emit("charge.refunded", *ch, pi.ID)
	return re, nil
}

// RefundAtDashboard refunds a part of an intent, or what is left of it if the amount is 0, without
// metadata. It accepts any reason.
func (s *Server) RefundAtDashboard(intentID string, amount int64, reason string) (id string, err error) {
	err = s.change(intentID, func(pi *intent) error {
		re, refused := s.refund(pi, amount, reason, map[string]string{})
		if refused != nil {
			return fmt.Errorf("stripetest: %s cannot be refunded: %s", intentID, refused.Message)
		}
		id = re.ID
		return nil
	})
	return id, err
}

// EditRefund changes a refund as the provider or its dashboard can, such as its metadata.
func (s *Server) EditRefund(id string, edit func(*Refund)) error {
	s.mu.Lock()
	re, ok := s.refunds.byID[id]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("stripetest: no refund %s", id)
	}
	return s.change(re.IntentID, func(*intent) error {
		re.Metadata = maps.Clone(re.Metadata) // earlier copies share it
		edit(re)
		s.emit("charge.refund.updated", *re, re.IntentID)
		return nil
	})
}

func (s *Server) settleRefund(re *Refund, success bool) error {
	ch := s.charges.byID[re.Charge]
	failsLater := s.cardOf(ch).refundFails && re.Status == succeeded
	if re.Status != "pending" && !failsLater {
		return fmt.Errorf("stripetest: %s is not pending", re.ID)
	}
	re.Status = succeeded
	if !success {
		re.Status = "failed"
		re.FailureReason = "expired_or_canceled_card"
		ch.Refunded -= re.Amount
	}
	s.emit("charge.refund.updated", *re, re.IntentID)
	return nil
}

// SettleRefunds decides the refunds that are older than age, and returns their ids: a pending one succeeds, and one of
// pm_card_refundFail fails, as at Stripe.
func (s *Server) SettleRefunds(age time.Duration) (settled []string) {
	succeeds := map[string]bool{}
	s.mu.Lock()
	for _, re := range s.refunds.all() {
		fails := re.Status == succeeded && s.cardOf(s.charges.byID[re.Charge]).refundFails
		if (fails || re.Status == "pending") && time.Unix(re.Created, 0).Add(age).Before(s.now()) {
			succeeds[re.ID] = !fails
		}
	}
	s.mu.Unlock()
	for id, success := range succeeds {
		if s.Settle(id, success) == nil {
			settled = append(settled, id)
		}
	}
	return settled
}

func (s *Server) getRefund(c *call) (effect, *apiError) {
	if err := c.form.done(); err != nil {
		return nil, err
	}
	re, ok := s.refunds.byID[c.id]
	if !ok {
		return nil, missing(http.StatusNotFound, "id", "refund", c.id)
	}
	return func() (any, *apiError) { return re, nil }, nil
}

func (s *Server) listRefunds(c *call) (effect, *apiError) {
	intentID := c.form.text("payment_intent")
	return listPage(c, &s.refunds, func(re *Refund) bool { return intentID == "" || re.IntentID == intentID })
}
