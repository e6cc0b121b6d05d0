// Package stripetest is a fake Stripe: an http.Handler with the part of Stripe's API that this
// project uses, at version 2024-06-20. It accepts test keys only and moves no money. It
// rejects parameters that it does not know.
//
// There are no customers, saved cards, separate capture, delivery of events, or further pages of a
// search. The list of events has those of refunds and disputes.
package stripetest
