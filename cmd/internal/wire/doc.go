// Package wire is the network between the API and the payment provider, for the
// tour and the console: a proxy that can lose the answer to a charge, be slow, and
// say what passes. It breaks the line and never the provider, so it works with the
// stand-in and with Stripe's test mode alike.
//
// It knows that a charge is a POST to a path that ends in /confirm, and nothing
// else of the provider. What it tells of a call holds no header and no body.
package wire
