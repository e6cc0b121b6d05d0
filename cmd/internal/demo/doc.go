// Package demo shows how an order survives failures. It has one list of scenarios and
// two ways to show them: [Tour] is `orders demo`, and [Console] is the page /console of
// `orders dev`.
//
// A scenario is an order with a card and a fault. Faults are caused from outside: the
// API is an `orders serve` process that can be killed, and it reaches the provider
// through a [faultproxy.Proxy] that can drop a response. So most faults work with the
// stand-in and with Stripe's test mode alike. Each scenario ends with the same checks,
// which read the database, the provider's list of payments and the mailbox.
//
// Nothing else depends on this package: a project can delete it together with
// cmd/orders/demo.go and cmd/orders/console.go.
package demo
