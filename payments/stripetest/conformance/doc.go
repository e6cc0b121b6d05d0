// Package conformance compares the stand-in with Stripe. It has one table of checks,
// checks_test.go, and each check is some requests with the responses that Stripe
// documents.
//
// go test runs the table against the stand-in. make stripe-check runs it against
// Stripe's test mode, with the key in STRIPE_SECRET_KEY; without a key it lists the
// checks. Each difference is an error of the stand-in, or a change at Stripe.
//
// The table has never been run against Stripe itself, only against stand-ins. Where
// Stripe documents nothing, a note in the check says so.
package conformance
