package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/accounts"
)

// accountsCreate prints the new API key as its last line.
func accountsCreate(ctx context.Context, call *invocation) error {
	name := call.flags.String("name", "", "the account's `name` (required)")
	pool, err := openPool(ctx, call, "name")
	if err != nil {
		return err
	}
	defer pool.Close()
	id, key, err := accounts.Create(ctx, pool, *name)
	return call.printResult(err, "Account %s (%q). Its API key, which is shown only once:\n%s\n", id, *name, key)
}

func accountsList(ctx context.Context, call *invocation) error {
	pool, err := openPool(ctx, call)
	if err != nil {
		return err
	}
	defer pool.Close()
	list, err := accounts.List(ctx, pool)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(call.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tCREATED\tAPI KEYS\tNAME")
	for _, account := range list {
		fmt.Fprintf(table, "%s\t%s\t%d\t%q\n", account.ID, formatTime(account.CreatedAt), account.Keys, account.Name)
	}
	return table.Flush()
}

// ofAccount returns a command with the flag --account, and with an argument unless it is "".
func ofAccount(
	argument string, run func(context.Context, *invocation, *pgxpool.Pool, uuid.UUID) error,
) func(context.Context, *invocation) error {
	return func(ctx context.Context, call *invocation) error {
		call.argument = argument
		account := accountFlag(call, "the account's `id` (required)")
		pool, err := openPool(ctx, call, "account")
		if err != nil {
			return err
		}
		defer pool.Close()
		return run(ctx, call, pool, account.UUID)
	}
}

func accountsKeysList(ctx context.Context, call *invocation, pool *pgxpool.Pool, account uuid.UUID) error {
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
}

// accountsKeysCreate prints the new API key as its last line.
func accountsKeysCreate(ctx context.Context, call *invocation, pool *pgxpool.Pool, account uuid.UUID) error {
	key, apiKey, err := accounts.CreateKey(ctx, pool, account)
	return call.printResult(err, "API key %s of account %s, which is shown only once:\n%s\n", key.ID, account, apiKey)
}

func accountsKeysRevoke(ctx context.Context, call *invocation, pool *pgxpool.Pool, account uuid.UUID) error {
	id, err := uuid.Parse(call.value)
	if err != nil {
		return wrongUsage(call.name, "ID is not an id that orders accounts keys list prints")
	}
	key, err := accounts.RevokeKey(ctx, pool, account, id)
	if err != nil {
		return err
	}
	return call.printResult(nil, "API key %s (%s…) was revoked at %s, UTC. It stops working within 5 seconds.\n",
		key.ID, key.Prefix, formatTime(*key.RevokedAt))
}

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

func openPool(ctx context.Context, call *invocation, required ...string) (*pgxpool.Pool, error) {
	var config setup.DatabaseOnly
	if err := call.load(&config, required...); err != nil {
		return nil, err
	}
	return setup.Pool(ctx, config.Database, config.Logger(call.stderr))
}
