// Package livecheck compares the fake with Stripe. Each check in checks_test.go
// is a sequence of requests with the responses that Stripe documents; a note states
// what Stripe does not document.
//
// go test runs the checks against the fake. make -C lab stripe-check runs them against
// Stripe's test mode with STRIPE_SECRET_KEY, or lists them without a key. They have
// never been run against Stripe itself.
package livecheck
