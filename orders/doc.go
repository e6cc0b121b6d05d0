// Package orders creates orders and refunds, exactly once per idempotency key. An
// order takes three transactions and two calls to the payment provider:
//
//	started         tx 1: claim the key, insert the order
//	order_created   call: create the PaymentIntent, unconfirmed; tx 2: record its id
//	charge_created  call: confirm it (money moves here); tx 3: mark paid, stage the
//	                receipt, store the response
//	finished
//
// Money moves only on a PaymentIntent whose id is committed here, so reading that
// intent resolves an unknown outcome at any age. [Service.Create] serves a request
// and its retries; [Service.Resume] continues an abandoned key without a client.
//
// If the customer must approve the payment, a run ends at charge_created with an
// [*ActionRequiredError]. The next run reads from the intent whether the customer has.
//
// A refund is the second operation on the same engine, [Service.Refund]:
//
//	started         tx 1: claim the key, reserve the amount, insert the refund
//	refund_created  call: list the intent's refunds, then refund (money moves here);
//	                tx 2: record the refund and the order's amount_refunded, store
//	                the response
//	finished
//
// [Service.HandleEvent] applies what the provider decides later; the stored response
// stays as it is. Package reconcile compares orders and refunds with the provider's
// records.
//
// The package defines the stored responses (201, 402, 422), because they are part of
// the last transaction. It has no net/http.
package orders
