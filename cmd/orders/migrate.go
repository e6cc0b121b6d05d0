package main

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/migrations"
)

type migrate struct{}

func (migrate) Environment(config *app.Config) []any { return []any{&config.Database, &config.Log} }

type migrateUp struct{ migrate }

func (migrateUp) Run(ctx context.Context, migrator *migrations.Migrator) error {
	applied, err := migrator.Up(ctx)
	return printed(err, "applied: %d\n", applied)
}

type migrateDown struct {
	migrate

	Yes bool `help:"Confirm that data will be deleted (required)."`
}

func (c migrateDown) Validate() error {
	if !c.Yes {
		return errors.New("deletes the tables and columns of the migration that was applied last: it requires --yes")
	}
	return nil
}

func (migrateDown) Run(ctx context.Context, migrator *migrations.Migrator) error {
	name, err := migrator.Down(ctx)
	return printed(err, "rolled back: %s\n", cmp.Or(name, "nothing"))
}

type migrateStatus struct{ migrate }

func (migrateStatus) Run(ctx context.Context, migrator *migrations.Migrator) error {
	lines, err := migrator.Status(ctx)
	return printed(err, "%s\n", strings.Join(lines, "\n"))
}
