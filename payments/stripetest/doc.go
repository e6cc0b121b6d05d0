// Package stripetest is a stand-in (a fake) for the part of Stripe's API that this
// project uses. It is an http.Handler with state, Stripe's idempotency rules and
// scripted faults. It accepts test keys only and moves no money. It implements API
// version 2024-06-20:
//
//	stripe := stripetest.New(stripetest.Options{})
//	server := httptest.NewServer(stripe)
//
// A test can use it as follows:
//
//   - Requests and Executions: what arrived and what was executed. A transport may send
//     a request twice, so count executions.
//   - Charges, Refunds, MoneyMoved: the ledger. OrdersChargedTwice and RefundedTwice must
//     be empty after every test.
//   - Inject: a fault before or after the effect. Nothing is random.
//   - Authenticate, ConfirmAsCustomer: the customer of a 3-D Secure challenge. Other
//     processes send the client_secret to /customer/{id}/approve or /decline.
//   - Settle: the bank's decision about a pending payment or refund.
//   - Event, SignedEvent: webhook events. The test delivers them.
//   - Advance: its clock. Persist: a file that keeps its state.
//
// It rejects parameters that it does not implement, because ignoring one would prove
// nothing about it. The package conformance compares it with Stripe.
package stripetest
