package main

import (
	"context"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/app"
)

type erase struct {
	ofAccount
	by

	Order uuid.UUID `required:"" placeholder:"ID" help:"The order's id."`
}

func (c erase) Run(ctx context.Context, a *app.App) error {
	err := a.Orders.Erase(ctx, c.Account, c.Order, c.By)
	return printed(err, "The personal data of order %s is erased, except in backups and at the provider (docs/erase.md).\n", c.Order)
}
