// Package stripetest is a stand-in (a fake) for the part of Stripe that an orders API
// uses: an http.Handler with state, Stripe's idempotency rules and scripted faults.
// No money moves.
//
// It serves payment intents, refunds and charges in the shape of API version
// 2024-06-20, and accepts test keys only. Run it in any server:
//
//	stripe := stripetest.New(stripetest.Options{})
//	server := httptest.NewServer(stripe)
//
// What it records and what a test controls:
//
//   - Requests and Executions return what arrived and what was executed. A transport
//     may send one request twice, so count executions.
//   - Charges, Refunds, MoneyMoved, OrdersChargedTwice and RefundedTwice are the
//     ledger. The last two must be empty after every test.
//   - Inject scripts a fault before or after the effect. Nothing is random: the same
//     script gives the same run.
//   - Authenticate approves or declines a 3-D Secure challenge, and ConfirmAsCustomer
//     pays with another card from the browser. A challenge without an answer stays open
//     until a cancel. Other processes send the client_secret to
//     /customer/{id}/approve, /decline or /confirm.
//   - Advance moves its clock, ForgetKey forgets a key, Settle decides payments and
//     refunds that are pending at the bank.
//   - Event and SignedEvent create webhook events. The stand-in sends none by itself:
//     a test delivers them, late, twice, out of order or not at all.
//   - Persist keeps objects and keys in a file, for the next process.
//
// It is stricter than Stripe. It rejects a parameter that it does not implement as
// unknown, because a stand-in that ignores a parameter proves nothing about it.
//
// The package conformance compares it with Stripe, see make stripe-check.
//
// It imports no other package of this module and reads no environment. Without Persist
// it keeps everything in memory.
package stripetest
