package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"example.com/orders-api/api"
	"example.com/orders-api/cmd/internal/boot"
)

// accounts is the command: accounts create --name N prints the new API key as
// its last line.
func accounts(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 || args[0] != "create" {
		return fmt.Errorf("%w: orders accounts create --name NAME", errUsage)
	}
	flags := flag.NewFlagSet("accounts create", flag.ContinueOnError)
	name := flags.String("name", "", "the account's name, for people")
	if err := parse(flags, args[1:], stderr); err != nil {
		return err
	}
	if *name == "" {
		return fmt.Errorf("%w: orders accounts create --name NAME", errUsage)
	}
	var config boot.Store
	if err := boot.Load(&config); err != nil {
		return err
	}
	pool, err := boot.Pool(ctx, config.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	id, key, err := api.CreateAccount(ctx, pool, *name)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Account %s (%s). Its API key, which is shown this once:\n%s\n", id, *name, key)
	return nil
}
