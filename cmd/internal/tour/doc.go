// Package tour is what `orders demo` runs: it sends orders to a real `orders
// serve` process, breaks the network and the process on the way, and checks
// every claim it prints against the provider's own list of payments.
//
// Faults are made from outside. Between the API and the payment provider sits a
// proxy that can lose an answer, and the API is a child process that can be
// killed, so the tour is the same with the stand-in and with Stripe's test mode.
// Only a 500 that the provider keeps needs the stand-in.
package tour
