// Package stripetest is a stand-in (a fake) for the part of Stripe's API that this
// project uses: an http.Handler with state, Stripe's idempotency rules and scripted
// faults. It implements API version 2024-06-20, accepts test keys only, and moves no
// money:
//
//	stripe := stripetest.New(stripetest.Options{})
//	server := httptest.NewServer(stripe)
//
// What a test can use:
//
//   - Requests, Executions: what arrived and what was executed. A transport may send a
//     request twice, so count executions.
//   - Charges, Refunds, MoneyMoved: the ledger. OrdersChargedTwice and RefundedTwice must
//     be empty after every test.
//   - Inject: a fault before or after the effect. Nothing is random.
//   - Authenticate, ConfirmAsCustomer: the customer of a 3-D Secure challenge. Other
//     processes send the client_secret to /customer/{id}/approve or /decline.
//   - Settle: the bank's decision. Event, SignedEvent: webhook events to deliver.
//   - Advance: the clock. Persist: a file that keeps the state.
//   - Options.SearchDelay, NoSearch: the index of the search endpoint lags, and not every
//     account has the endpoint.
//
// It rejects parameters that it does not implement, because ignoring one would prove
// nothing about it. The package conformance compares it with Stripe.
package stripetest
