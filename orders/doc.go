// Package orders creates orders, and charges each once or not at all. An order takes three
// transactions and two calls to the payment provider:
//
//	started         tx 1: claim the key, insert the order
//	order_created   call: create the PaymentIntent, unconfirmed; tx 2: record its id
//	charge_created  call: confirm it (money moves here); tx 3: mark paid, stage the
//	                receipt, store the response
//	finished
//
// A cancel is an operation of its own, see cancelOrder.
//
// Money moves only on a PaymentIntent whose id is committed, so reading it resolves an unknown
// outcome at any age.
package orders
