// Package stripetest is a stand-in for the part of Stripe that an orders API
// needs: an http.Handler with state, Stripe's idempotency rules to the letter,
// and faults that strike where a test says. No money moves.
//
// It serves payment intents, refunds and charges in the shape of API version
// 2024-06-20, and takes test keys only.
// Run it behind any server:
//
//	stripe := stripetest.New(stripetest.Options{})
//	server := httptest.NewServer(stripe)
//
// What makes it useful is what it remembers and what it can be told:
//
//   - Requests and Executions say what arrived and what ran. A transport may
//     send one request twice, so count executions.
//   - Charges, Refunds, MoneyMoved, OrdersChargedTwice and RefundedTwice are the
//     ledger. Whatever went wrong on the way, the last two must stay empty.
//   - Inject scripts a fault, before the effect or after it. There are no
//     dice: the same script gives the same run.
//   - Advance moves its clock, ForgetKey forgets a key, Settle decides what a
//     provider decides later.
//   - Event and SignedEvent make what a webhook is sent. Nothing is sent by
//     itself: a test delivers, late, twice, out of order or not at all.
//
// It is strict where Stripe is lenient. A parameter it does not implement is
// refused as unknown although Stripe may know it, because a stand-in that
// ignores a parameter proves nothing about it.
//
// It knows Stripe's wire format and nothing of the program under test: it
// imports no other package of this module, reads no environment, and keeps
// everything in memory.
package stripetest
