// Package demo shows how an order survives failures. It has one list of scenarios, which
// [Tour] (`orders demo`) and [Console] (the page /console of `orders dev`) run.
// A scenario is an order with a card and a fault. The API is a process that can be killed,
// and reaches the provider through a proxy that can drop a response.
package demo
