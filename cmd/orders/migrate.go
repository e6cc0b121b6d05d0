package main

import (
	"context"
	"fmt"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/migrations"
)

func migrateUp(ctx context.Context, call invocation) error {
	return withMigrator(ctx, call, func(m *migrations.Migrator) error {
		applied, err := m.Up(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(call.stdout, "applied: %d\n", applied)
		return nil
	})
}

func migrateDown(ctx context.Context, call invocation) error {
	return withMigrator(ctx, call, func(m *migrations.Migrator) error {
		name, err := m.Down(ctx)
		if err != nil {
			return err
		}
		if name == "" {
			name = "nothing"
		}
		fmt.Fprintf(call.stdout, "rolled back: %s\n", name)
		return nil
	})
}

func migrateStatus(ctx context.Context, call invocation) error {
	return withMigrator(ctx, call, func(m *migrations.Migrator) error {
		list, err := m.Status(ctx)
		if err != nil {
			return err
		}
		for _, s := range list {
			state := "pending"
			if s.Applied {
				state = "applied"
			}
			fmt.Fprintf(call.stdout, "%s  %s\n", state, s.Name)
		}
		return nil
	})
}

func withMigrator(ctx context.Context, call invocation, work func(*migrations.Migrator) error) error {
	var config boot.DatabaseOnly
	if err := call.parse(call.flags(), &config); err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	return boot.WithMigrator(ctx, config.Database, config.Logger(call.stderr), work)
}
