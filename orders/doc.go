// Package orders is what the API is for: it makes an order, charges its card
// and stages its receipt, as three transactions and two calls to the payment
// provider.
//
//	started         tx 1: claim the key, insert the order
//	order_created   call: create the PaymentIntent, unconfirmed; tx 2: record its id
//	charge_created  call: confirm it (money moves here); tx 3: mark paid, stage the
//	                receipt, store the response
//	finished
//
// Money moves only on a PaymentIntent whose id is committed here, so any doubt
// about a charge is settled by asking the provider for that one intent, at any
// age. A request, a retry and whatever resumes an abandoned order all take this
// path, by way of [Service.Create] and [Service.Resume].
//
// A refund is the second operation on the same engine, [Service.Refund]:
//
//	started         tx 1: claim the key, hold the amount, insert the refund
//	refund_created  call: refund (money moves here); tx 2: record what came of it,
//	                raise the order's amount_refunded, store the response
//	finished
//
// It moves money in one call, under one provider key that is never replaced, and
// looks for its refund in the provider's list whenever it is about to send it.
// Refunds of an order hold its row while they look at what is left of it, so they
// never give back more than was charged. What the provider decides later is
// followed by [Service.HandleEvent]; the stored answer stays.
//
// Package reconcile compares both with the provider's records.
//
// The package decides the stored responses (201, 402, 422), because they are
// fixed when the last transaction commits. It knows package idempotency for
// the path, payments for the provider and receipts for the mail; it does not
// know HTTP.
package orders
