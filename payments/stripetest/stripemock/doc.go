// Package stripemock starts stripe-mock for a test: Stripe's own check of
// requests against its published API description.
//
// It tells whether parameters exist and have the right type, which the
// stand-in in the parent package cannot know by itself. It knows no state, no
// idempotency and no declines; for those use the stand-in.
//
// The version is pinned in tools/go.mod, a module of its own, so that nothing
// of it reaches the program's dependencies. The first start on a machine
// builds it, which takes some seconds.
package stripemock
