package main

import (
	"cmp"
	"context"
	"strings"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/migrations"
)

// migrate returns a command that needs a migrator.
func migrate(run func(context.Context, *invocation, *migrations.Migrator) error) func(context.Context, *invocation) error {
	return func(ctx context.Context, call *invocation) error {
		var config setup.DatabaseOnly
		if err := call.load(&config); err != nil {
			return err
		}
		return setup.WithMigrator(ctx, config.Database, config.Logger(call.stderr), func(migrator *migrations.Migrator) error {
			return run(ctx, call, migrator)
		})
	}
}

func migrateUp(ctx context.Context, call *invocation, migrator *migrations.Migrator) error {
	applied, err := migrator.Up(ctx)
	return call.printResult(err, "applied: %d\n", applied)
}

func migrateDown(ctx context.Context, call *invocation) error {
	yes := call.flags.Bool("yes", false, "confirm that data will be deleted (required)")
	return migrate(func(ctx context.Context, call *invocation, migrator *migrations.Migrator) error {
		if !*yes {
			return wrongUsage(call.name, "orders %s deletes the tables and columns of the migration that was applied last: it requires --yes", call.name)
		}
		name, err := migrator.Down(ctx)
		return call.printResult(err, "rolled back: %s\n", cmp.Or(name, "nothing"))
	})(ctx, call)
}

func migrateStatus(ctx context.Context, call *invocation, migrator *migrations.Migrator) error {
	lines, err := migrator.Status(ctx)
	return call.printResult(err, "%s\n", strings.Join(lines, "\n"))
}

func migrateCitus(ctx context.Context, call *invocation, migrator *migrations.Migrator) error {
	tables, err := migrator.Distribute(ctx)
	return call.printResult(err, "distributed: %d %s\n", len(tables), strings.Join(tables, " "))
}
