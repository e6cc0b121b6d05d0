package api

import (
	"errors"

	"example.com/orders-api/orders"
)

func orderProblem(err error) (p problem, ok bool) {
	exists, ok := errors.AsType[*orders.OrderExistsError](err)
	if ok {
		p = newProblem("order-exists", "The order in order_id has this reference, and its payment has not failed.")
		p.OrderID = &exists.OrderID
	}
	return p, ok
}
