// Package stripetest is a fake Stripe: an http.Handler with the part of Stripe's API that
// this project uses, at version 2024-06-20. It accepts test keys only and moves no money.
//
//	stripe := stripetest.New(stripetest.Options{})
//	server := httptest.NewServer(stripe)
//
// It implements PaymentIntents, refunds, test cards, 3-D Secure and idempotency keys, has faults
// and a state file, and signs events.
//
// It rejects parameters that it does not know, and has no customers, saved cards, separate
// capture, disputes, delivery of events, or further pages of a search.
package stripetest
