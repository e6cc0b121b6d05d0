package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/term"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/migrations"
)

func migrateUp(ctx context.Context, call *invocation) error {
	return withMigrator(ctx, call, func(m *migrations.Migrator, _ *pgx.ConnConfig) error {
		applied, err := m.Up(ctx)
		return call.printResult(err, "applied: %d\n", applied)
	})
}

func migrateDown(ctx context.Context, call *invocation) error {
	yes := call.flags.Bool("yes", false, "do not ask for confirmation; required without a terminal")
	return withMigrator(ctx, call, func(m *migrations.Migrator, database *pgx.ConnConfig) error {
		if !*yes {
			if err := confirmDown(ctx, call, database); err != nil {
				return err
			}
		}
		name, err := m.Down(ctx)
		return call.printResult(err, "rolled back: %s\n", cmp.Or(name, "nothing"))
	})
}

// confirmDown returns an error unless the user types the name of the database.
func confirmDown(ctx context.Context, call *invocation, database *pgx.ConnConfig) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return wrongUsage(call.name, "orders %s deletes data: without a terminal to ask at, it requires --yes", call.name)
	}
	fmt.Fprintf(call.stderr, "This deletes the tables and columns of the newest migration in the database %s at %s.\nType the name of the database to continue: ",
		database.Database, database.Host)
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // at its end the name does not match
		typed <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case name := <-typed:
		if name != database.Database {
			return errors.New("not confirmed, so nothing was rolled back")
		}
		return nil
	}
}

func migrateStatus(ctx context.Context, call *invocation) error {
	return withMigrator(ctx, call, func(m *migrations.Migrator, _ *pgx.ConnConfig) error {
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

func migrateDistribute(ctx context.Context, call *invocation) error {
	return withMigrator(ctx, call, func(m *migrations.Migrator, _ *pgx.ConnConfig) error {
		tables, err := m.Distribute(ctx)
		return call.printResult(err, "distributed: %d %s\n", len(tables), strings.Join(tables, " "))
	})
}

func withMigrator(ctx context.Context, call *invocation, work func(*migrations.Migrator, *pgx.ConnConfig) error) error {
	var config boot.DatabaseOnly
	if err := call.load(&config); err != nil {
		return err
	}
	return boot.WithMigrator(ctx, config.Database, config.Logger(call.stderr), work)
}
