package api

import (
	"errors"

	"example.com/orders-api/orders"
)

func orderProblem(err error) (p problem, ok bool) {
	if exists, ok := errors.AsType[*orders.OrderExistsError](err); ok {
		p = newProblem("order-exists", "The order in order_id has this reference, and its payment has not failed.")
		p.OrderID = &exists.OrderID
		return p, true
	}
	paid, ok := errors.AsType[*orders.NotCancelableError](err)
	if ok {
		p = newProblem("order-not-cancelable", "The card was charged before the order could be cancelled.")
		p.OrderID = &paid.OrderID
	}
	return p, ok
}
