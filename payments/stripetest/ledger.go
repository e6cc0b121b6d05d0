package stripetest

import (
	"slices"
	"time"
)

// A Charge is a successful charge.
type Charge struct {
	ID       string
	IntentID string
	OrderID  string // metadata[order_id] of the intent
	Amount   int64
	Refunded int64 // includes pending refunds, not failed ones
	Currency string
	Time     time.Time
}

// Charges returns the successful charges, oldest first.
func (s *Server) Charges() []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	var charges []Charge
	for _, ch := range s.charges.all() {
		if ch.Status == succeeded {
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
	}
	return charges
}

// ChargesByOrder returns the charges of an order.
func (s *Server) ChargesByOrder(orderID string) []Charge {
	return slices.DeleteFunc(s.Charges(), func(c Charge) bool { return c.OrderID != orderID })
}

// MoneyMoved returns charges minus refunds by currency.
func (s *Server) MoneyMoved() map[string]int64 {
	moved := make(map[string]int64)
	for _, c := range s.Charges() {
		moved[c.Currency] += c.Amount - c.Refunded
	}
	return moved
}

// OrdersChargedTwice returns the orders with several charges, refunded or not.
func (s *Server) OrdersChargedTwice() []string {
	return repeated(s.Charges(), func(c Charge) string { return c.OrderID })
}

// A Refund is a refund in any state.
type Refund struct {
	ID       string
	IntentID string
	Name     string // metadata[refund_id]
	Amount   int64
	Currency string
	Status   string
	Time     time.Time
}

// Refunds returns all refunds, oldest first.
func (s *Server) Refunds() []Refund {
	s.mu.Lock()
	defer s.mu.Unlock()
	var refunds []Refund
	for _, re := range s.refunds.all() {
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
	return repeated(s.Refunds(), func(r Refund) string { return r.Name })
}

func repeated[T any](entries []T, name func(T) string) []string {
	count := make(map[string]int)
	var twice []string
	for _, entry := range entries {
		count[name(entry)]++
		if name(entry) != "" && count[name(entry)] == 2 {
			twice = append(twice, name(entry))
		}
	}
	slices.Sort(twice)
	return twice
}

// A Request is the record of a request.
type Request struct {
	ID       string // the Request-Id
	Time     time.Time
	Method   string
	Path     string
	Endpoint string // as in Rule; empty for an unrecognized URL
	Key      string // of a POST
	OrderID  string // metadata[order_id] of the request, or of the intent it names
	Body     []byte
	Status   int  // 0 without a response
	Executed bool // with an effect or an error of it
	Replayed bool // the response was a stored one
	Faults   []Fault
}

const maxRequests = 10_000

func (s *Server) addRequest(r *Request) {
	if len(s.requests) == 2*maxRequests {
		s.requests = slices.Clone(s.requests[maxRequests:])
	}
	s.requests = append(s.requests, r)
}

// Requests returns the latest requests, oldest first, including those in flight.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var requests []Request
	for _, r := range s.requests {
		record := *r
		record.Faults = slices.Clone(r.Faults)
		requests = append(requests, record)
	}
	return requests
}
