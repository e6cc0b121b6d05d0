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
// path, by way of [Service.Create] and [Service.Resume]. [Service.Reconcile]
// compares what is left with the provider's own list.
//
// The package decides the stored responses (201, 402, 422), because they are
// fixed when the last transaction commits. It knows package idempotency for
// the path, payments for the provider and receipts for the mail; it does not
// know HTTP.
package orders
