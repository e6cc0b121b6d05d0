// Package stripemock starts stripe-mock for a test: Stripe's server that checks
// requests against the published API description.
//
// It checks whether parameters exist and have the right type, which the stand-in in
// the parent package cannot do. It has no state, no idempotency and no declines; for
// those use the stand-in.
//
// The version is pinned in tools/go.mod, so that it adds no dependency to the
// program's module. The first start on a machine builds it, which takes some seconds.
package stripemock
