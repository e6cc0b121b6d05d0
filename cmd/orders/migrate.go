package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/migrations"
)

type migrate struct {
	What string `arg:"" enum:"up,down,status" help:"up applies all pending migrations, status lists them, and down rolls back the one that was applied last, and deletes its data."`
	Yes  bool   `help:"Confirm that down deletes data (required for it)."`
}

func (c migrate) Validate() error {
	if c.What == "down" && !c.Yes {
		return errors.New("down deletes the tables and columns of the migration that was applied last: it requires --yes")
	}
	return nil
}

func (c migrate) Run(ctx context.Context) error {
	config, err := app.Load("DATABASE_URL")
	if err != nil {
		return err
	}
	return app.Migrate(ctx, config.Database, config.Logger(os.Stderr), func(migrator *migrations.Migrator) error {
		switch c.What {
		case "up":
			applied, err := migrator.Up(ctx)
			return printed(err, "applied: %d\n", applied)
		case "down":
			name, err := migrator.Down(ctx)
			return printed(err, "rolled back: %s\n", name)
		}
		lines, err := migrator.Status(ctx)
		return printed(err, "%s\n", strings.Join(lines, "\n"))
	})
}
