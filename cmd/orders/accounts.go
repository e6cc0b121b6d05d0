package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/internal/accounts"
)

// accountsCreate prints the new API key as its last line.
func accountsCreate(ctx context.Context, call *invocation) error {
	name := call.flags.String("name", "", "the account's `name` (required)")
	return withPool(ctx, call, func(pool *pgxpool.Pool) error {
		id, key, err := accounts.Create(ctx, pool, *name)
		return call.printResult(err, "Account %s (%q). Its API key, which is shown only once:\n%s\n", id, *name, key)
	}, "name")
}

func accountsKeysList(ctx context.Context, call *invocation) error {
	return withAccount(ctx, call, func(pool *pgxpool.Pool, account uuid.UUID) error {
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
func accountsKeysCreate(ctx context.Context, call *invocation) error {
	return withAccount(ctx, call, func(pool *pgxpool.Pool, account uuid.UUID) error {
		key, apiKey, err := accounts.CreateKey(ctx, pool, account)
		return call.printResult(err, "API key %s of account %s, which is shown only once:\n%s\n", key.ID, account, apiKey)
	})
}

func accountsKeysRevoke(ctx context.Context, call *invocation) error {
	name := call.take("PREFIX_OR_ID")
	return withAccount(ctx, call, func(pool *pgxpool.Pool, account uuid.UUID) error {
		key, err := accounts.RevokeKey(ctx, pool, account, *name)
		if err != nil {
			return err
		}
		return call.printResult(nil, "API key %s (%s…) was revoked at %s, UTC. It stops working within 5 seconds.\n",
			key.ID, key.Prefix, formatTime(*key.RevokedAt))
	})
}

// withAccount calls work with the account of --account.
func withAccount(ctx context.Context, call *invocation, work func(*pgxpool.Pool, uuid.UUID) error) error {
	account := accountFlag(call, "the account's `id` (required)")
	return withPool(ctx, call, func(pool *pgxpool.Pool) error { return work(pool, account.UUID) }, "account")
}

// accountID is the value of --account.
type accountID struct{ uuid.UUID }

func accountFlag(call *invocation, usage string) *accountID {
	account := new(accountID)
	call.flags.TextVar(account, "account", account, usage)
	return account
}

// MarshalText returns "" if the flag is not set.
func (a *accountID) MarshalText() ([]byte, error) {
	if a.UUID == uuid.Nil {
		return nil, nil
	}
	return a.UUID.MarshalText()
}

// withPool loads the command and calls work with a connection pool to DATABASE_URL.
func withPool(ctx context.Context, call *invocation, work func(*pgxpool.Pool) error, required ...string) error {
	var config boot.DatabaseOnly
	if err := call.load(&config, required...); err != nil {
		return err
	}
	pool, err := boot.Pool(ctx, config.Database, config.Logger(call.stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(pool)
}
