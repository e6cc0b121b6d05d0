package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"example.com/orders-api/cmd/internal/setup"
)

// migrate returns a command that needs a migrator.
func migrate(run func(context.Context, *invocation, *setup.Migrator) error) func(context.Context, *invocation) error {
	return func(ctx context.Context, call *invocation) error {
		var config setup.DatabaseOnly
		if err := call.load(&config); err != nil {
			return err
		}
		migrator, err := setup.OpenMigrator(ctx, config.Database, config.Logger(call.stderr))
		if err != nil {
			return err
		}
		defer migrator.Close()
		return run(ctx, call, migrator)
	}
}

func migrateUp(ctx context.Context, call *invocation, migrator *setup.Migrator) error {
	applied, err := migrator.Up(ctx)
	return call.printResult(err, "applied: %d\n", applied)
}

func migrateDown(ctx context.Context, call *invocation) error {
	yes := call.flags.Bool("yes", false, "do not ask for confirmation; required without a terminal")
	return migrate(func(ctx context.Context, call *invocation, migrator *setup.Migrator) error {
		if !*yes {
			if err := confirmDown(ctx, call, migrator); err != nil {
				return err
			}
		}
		name, err := migrator.Down(ctx)
		return call.printResult(err, "rolled back: %s\n", cmp.Or(name, "nothing"))
	})(ctx, call)
}

// confirmDown returns an error unless the user types the name of the database.
func confirmDown(ctx context.Context, call *invocation, migrator *setup.Migrator) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return wrongUsage(call.name, "orders %s deletes data: without a terminal to ask at, it requires --yes", call.name)
	}
	database, host := migrator.Database()
	fmt.Fprintf(call.stderr, "This deletes the tables and columns of the newest migration in the database %s at %s.\nType the name of the database to continue: ",
		database, host)
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		typed <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case name := <-typed:
		if name != database {
			return errors.New("not confirmed, so nothing was rolled back")
		}
		return nil
	}
}

func migrateStatus(ctx context.Context, call *invocation, migrator *setup.Migrator) error {
	list, err := migrator.Status(ctx)
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
}

func migrateCitus(ctx context.Context, call *invocation, migrator *setup.Migrator) error {
	tables, err := migrator.Distribute(ctx)
	return call.printResult(err, "distributed: %d %s\n", len(tables), strings.Join(tables, " "))
}
