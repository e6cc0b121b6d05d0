package stripetest

import (
	"maps"
	"slices"
	"time"
)

// A Charge is a successful charge.
type Charge struct {
	ID       string
	IntentID string
	OrderID  string // metadata[order_id] of the intent
	Amount   int64  // in the currency's smallest unit
	Refunded int64  // includes pending refunds, not failed ones
	Currency string
	Time     time.Time
}

// Charges returns the successful charges, oldest first.
func (s *Server) Charges() []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.succeeded()
}

// ChargesByOrder returns the successful charges of an order.
func (s *Server) ChargesByOrder(orderID string) []Charge {
	return slices.DeleteFunc(s.Charges(), func(c Charge) bool { return c.OrderID != orderID })
}

// MoneyMoved returns charges minus refunds by currency, in its smallest unit.
func (s *Server) MoneyMoved() map[string]int64 {
	moved := make(map[string]int64)
	for _, c := range s.Charges() {
		moved[c.Currency] += c.Amount - c.Refunded
	}
	return moved
}

// OrdersChargedTwice returns the orders with several successful charges, refunded or
// not.
func (s *Server) OrdersChargedTwice() []string {
	charges := make(map[string]int)
	for _, c := range s.Charges() {
		charges[c.OrderID]++
	}
	delete(charges, "") // charges without an order
	maps.DeleteFunc(charges, func(_ string, n int) bool { return n < 2 })
	return slices.Sorted(maps.Keys(charges))
}

// A Refund is a refund in any state.
type Refund struct {
	ID       string
	IntentID string
	Name     string // metadata[refund_id]: the client's id
	Amount   int64  // in the currency's smallest unit
	Currency string
	Status   string
	Time     time.Time
}

// Refunds returns all refunds, oldest first.
func (s *Server) Refunds() []Refund {
	s.mu.Lock()
	defer s.mu.Unlock()
	var refunds []Refund
	for _, re := range s.refunds.all {
		refunds = append(refunds, Refund{
			ID:       re.ID,
			IntentID: re.PaymentIntent,
			Name:     re.Metadata["refund_id"],
			Amount:   re.Amount,
			Currency: re.Currency,
			Status:   re.Status,
			Time:     time.Unix(re.Created, 0),
		})
	}
	return refunds
}

// RefundedTwice returns the names with several refunds in any state.
func (s *Server) RefundedTwice() []string {
	made := make(map[string]int)
	for _, re := range s.Refunds() {
		made[re.Name]++
	}
	delete(made, "") // without a name
	maps.DeleteFunc(made, func(_ string, n int) bool { return n < 2 })
	return slices.Sorted(maps.Keys(made))
}

func (s *Server) succeeded() []Charge {
	var charges []Charge
	for _, ch := range s.charges.all {
		if ch.Status != succeeded {
			continue
		}
		charges = append(charges, Charge{
			ID:       ch.ID,
			IntentID: ch.PaymentIntent,
			OrderID:  ch.Metadata["order_id"],
			Amount:   ch.Amount,
			Refunded: ch.AmountRefunded,
			Currency: ch.Currency,
			Time:     time.Unix(ch.Created, 0),
		})
	}
	return charges
}
