// Command playground is for a developer's machine. `playground run` runs everything in one process,
// with a private PostgreSQL and the fake Stripe.
// A guided tour is `playground demo`.
package main

import "example.com/orders-api/cmd/internal/app"

type commands struct {
	Run   run   `cmd:"" help:"Run everything in one process, with its own PostgreSQL and a fake Stripe."`
	Demo  tour  `cmd:"" help:"Run a guided tour: charge an order, cause failures, see one charge."`
	Serve serve `cmd:"" hidden:""`
}

func main() {
	app.Main("playground", "An orders API that charges a card once or not at all, with all that it needs.", new(commands))
}
