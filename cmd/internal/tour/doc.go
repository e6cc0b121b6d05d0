// Package tour is what `orders demo` runs: it sends orders to an `orders serve`
// process, causes failures of the network and of the process, and checks every claim
// that it prints against the provider's list of payments.
//
// Failures are caused from outside. The API reaches the payment provider through a
// proxy that can drop a response, and the API is a subprocess that can be killed. So
// the tour is the same with the stand-in and with Stripe's test mode. Only two claims
// need the stand-in: a 500 that the provider stores, and a customer who approves.
package tour
