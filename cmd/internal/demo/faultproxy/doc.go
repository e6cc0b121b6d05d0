// Package faultproxy is a proxy between the API and the payment provider, for the
// demo and the console: it can drop the response to a confirm, add latency and
// report each call. It changes the connection and never the provider, so it works
// with the stand-in for Stripe and with Stripe's test mode alike.
//
// It knows that a confirm is a POST to a path that ends in /confirm, and nothing
// else of the provider. What it reports of a call holds no header and no body.
package faultproxy
