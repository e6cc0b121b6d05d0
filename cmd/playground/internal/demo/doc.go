// Package demo shows how an order survives failures. [Tour] (`playground demo`) and [Console] (the
// page /console of `playground run`) run scenarios: an order with a card and a fault. The API is a
// process that can be killed, and reaches the provider through a proxy that can lose a response.
package demo
