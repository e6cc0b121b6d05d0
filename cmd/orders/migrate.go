package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/migrations"
)

// migrate is the command: migrate up, down or status.
func migrate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "Usage: orders migrate up|down|status\n\n"+
			"up applies every pending migration, down takes the newest one back, status lists them.")
	}
	if len(args) == 0 {
		flags.Usage()
		return fmt.Errorf("%w: orders migrate up|down|status", errUsage)
	}
	action := args[0]
	if action != "up" && action != "down" && action != "status" {
		if action == "-h" || action == "-help" || action == "--help" {
			flags.Usage()
			return flag.ErrHelp
		}
		return fmt.Errorf("%w: orders migrate up|down|status, not %q", errUsage, action)
	}
	if err := parse(flags, args[1:], stderr); err != nil {
		return err
	}
	var config boot.Store
	if err := boot.Load(&config); err != nil {
		return err
	}
	pool, err := boot.MigrationPool(ctx, config.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := migrations.New(pool, config.Logger(stderr))
	if err != nil {
		return err
	}
	defer func() { _ = migrator.Close() }()

	switch action {
	case "up":
		applied, err := migrator.Up(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%d migrations applied\n", applied)
	case "down":
		name, err := migrator.Down(ctx)
		if err != nil {
			return err
		}
		if name == "" {
			name = "nothing to take back"
		}
		fmt.Fprintln(stdout, name)
	case "status":
		list, err := migrator.Status(ctx)
		if err != nil {
			return err
		}
		for _, s := range list {
			state := "pending"
			if s.Applied {
				state = "applied"
			}
			fmt.Fprintf(stdout, "%-8s %s\n", state, s.Name)
		}
	}
	return nil
}
