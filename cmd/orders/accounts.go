package main

import (
	"context"
	"flag"
	"fmt"
	"text/tabwriter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/accounts"
)

// accountsCreate prints the new API key as its last line.
func accountsCreate(ctx context.Context, call invocation) error {
	flags := call.flags()
	name := flags.String("name", "", "the account's `name` (required)")
	if _, err := call.parse(flags, new(boot.DatabaseOnly)); err != nil {
		return err
	}
	if *name == "" {
		return wrongUsage(call.name, "orders %s requires --name", call.name)
	}
	return withPool(ctx, call, func(pool *pgxpool.Pool) error {
		id, key, err := accounts.Create(ctx, pool, *name)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(call.stdout, "Account %s (%q). Its API key, which is shown only once:\n%s\n", id, *name, key); err != nil {
			return fmt.Errorf("account %s was created, but its API key could not be printed; create another: %w", id, err)
		}
		return nil
	})
}

func accountsKeysList(ctx context.Context, call invocation) error {
	return withAccount(ctx, call, func(pool *pgxpool.Pool, account uuid.UUID, _ []string) error {
		keys, err := accounts.ListKeys(ctx, pool, account)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(call.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PREFIX\tID\tCREATED\tREVOKED")
		for _, key := range keys {
			revoked := "-"
			if key.RevokedAt != nil {
				revoked = formatTime(*key.RevokedAt)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", key.Prefix, key.ID, formatTime(key.CreatedAt), revoked)
		}
		return table.Flush()
	})
}

// accountsKeysCreate prints the new API key as its last line.
func accountsKeysCreate(ctx context.Context, call invocation) error {
	return withAccount(ctx, call, func(pool *pgxpool.Pool, account uuid.UUID, _ []string) error {
		key, apiKey, err := accounts.CreateKey(ctx, pool, account)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(call.stdout, "API key %s of account %s, which is shown only once:\n%s\n", key.ID, account, apiKey); err != nil {
			return fmt.Errorf("API key %s could not be printed; revoke it: %w", key.ID, err)
		}
		return nil
	})
}

func accountsKeysRevoke(ctx context.Context, call invocation) error {
	return withAccount(ctx, call, func(pool *pgxpool.Pool, account uuid.UUID, arguments []string) error {
		key, err := accounts.RevokeKey(ctx, pool, account, arguments[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(call.stdout, "API key %s (%s…) was revoked at %s, UTC. It stops working within 5 seconds.\n",
			key.ID, key.Prefix, formatTime(*key.RevokedAt))
		return err
	}, "PREFIX_OR_ID")
}

// withAccount parses --account and the named arguments, and calls work with them.
func withAccount(
	ctx context.Context, call invocation, work func(pool *pgxpool.Pool, account uuid.UUID, arguments []string) error, names ...string,
) error {
	var account uuid.UUID
	flags := call.flags()
	accountFlag(flags, &account, "the account's `id` (required)")
	arguments, err := call.parse(flags, new(boot.DatabaseOnly), names...)
	if err != nil {
		return err
	}
	if account == uuid.Nil {
		return wrongUsage(call.name, "orders %s requires --account", call.name)
	}
	return withPool(ctx, call, func(pool *pgxpool.Pool) error { return work(pool, account, arguments) })
}

// accountFlag defines --account.
func accountFlag(flags *flag.FlagSet, account *uuid.UUID, usage string) {
	flags.Func("account", usage, func(text string) (err error) {
		*account, err = uuid.Parse(text)
		return err
	})
}

// withPool calls work with a connection pool to DATABASE_URL.
func withPool(ctx context.Context, call invocation, work func(*pgxpool.Pool) error) error {
	var config boot.DatabaseOnly
	if err := boot.Load(&config); err != nil {
		return err
	}
	pool, err := boot.Pool(ctx, config.Database, config.Logger(call.stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(pool)
}
