package main

import (
	"context"
	"fmt"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/accounts"
)

// accountsCreate prints the new API key as its last line.
func accountsCreate(ctx context.Context, call invocation) error {
	var config boot.Store
	flags := call.flags()
	name := flags.String("name", "", "the account's `name`, for people (needed)")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *name == "" {
		return wrongUsage(call.name, "orders %s needs --name", call.name)
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	pool, err := boot.Pool(ctx, config.Database, config.Logger(call.stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	id, key, err := accounts.Create(ctx, pool, *name)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(call.stdout, "Account %s (%q). Its API key, which is shown this once:\n%s\n", id, *name, key); err != nil {
		return fmt.Errorf("account %s has a key that could not be shown: %w", id, err)
	}
	return nil
}
