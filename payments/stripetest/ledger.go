package stripetest

import (
	"slices"
	"time"
)

// Charges returns the successful charges, oldest first.
func (s *Server) Charges() []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(copies(s.charges.all()), func(ch Charge) bool { return ch.Status != succeeded })
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
func (s *Server) OrdersChargedTwice() (orders []string) {
	charges := make(map[string]int)
	for _, ch := range s.Charges() {
		charges[ch.OrderID]++
		if ch.OrderID != "" && charges[ch.OrderID] == 2 {
			orders = append(orders, ch.OrderID)
		}
	}
	return orders
}

// Refunds returns all refunds, oldest first.
func (s *Server) Refunds() []Refund {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copies(s.refunds.all())
}

func copies[T any](pointers []*T) (values []T) {
	for _, p := range pointers {
		values = append(values, *p)
	}
	return values
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
	requests := copies(s.requests)
	for i := range requests {
		requests[i].Faults = slices.Clone(requests[i].Faults)
	}
	return requests
}
