package main

import (
	"context"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/cli"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/accounts"
)

// onDatabase is a command that needs only the database.
type onDatabase struct{ cli.Env[setup.DatabaseOnly] }

func (c onDatabase) with(ctx context.Context, run func(*pgxpool.Pool) error) error {
	config, err := c.Load()
	if err != nil {
		return err
	}
	pool, err := setup.Pool(ctx, config.Database, config.Logger(os.Stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	return run(pool)
}

type accountsCreate struct {
	onDatabase

	Name cli.Text `required:"" help:"The account's name."`
}

// Run prints the new API key as its last line.
func (c accountsCreate) Run(ctx context.Context) error {
	return c.with(ctx, func(pool *pgxpool.Pool) error {
		id, key, err := accounts.Create(ctx, pool, string(c.Name))
		return printed(err, "Account %s (%q). Its API key, which is shown only once:\n%s\n", id, c.Name, key)
	})
}

type accountsList struct{ onDatabase }

func (c accountsList) Run(ctx context.Context) error {
	return c.with(ctx, func(pool *pgxpool.Pool) error {
		list, err := accounts.List(ctx, pool)
		if err != nil {
			return err
		}
		return printTable("ID\tCREATED\tAPI KEYS\tNAME", "%s\t%s\t%d\t%q", list, func(account accounts.Account) []any {
			return []any{account.ID, formatTime(account.CreatedAt), account.Keys, account.Name}
		})
	})
}

// ofAccount is a command on the API keys of an account.
type ofAccount struct {
	onDatabase

	Account uuid.UUID `required:"" placeholder:"ID" help:"The account's id."`
}

type accountsKeysList struct{ ofAccount }

func (c accountsKeysList) Run(ctx context.Context) error {
	return c.with(ctx, func(pool *pgxpool.Pool) error {
		keys, err := accounts.ListKeys(ctx, pool, c.Account)
		if err != nil {
			return err
		}
		return printTable("PREFIX\tID\tCREATED\tREVOKED", "%s\t%s\t%s\t%s", keys, func(key accounts.Key) []any {
			revoked := "-"
			if key.RevokedAt != nil {
				revoked = formatTime(*key.RevokedAt)
			}
			return []any{key.Prefix, key.ID, formatTime(key.CreatedAt), revoked}
		})
	})
}

type accountsKeysCreate struct{ ofAccount }

// Run prints the new API key as its last line.
func (c accountsKeysCreate) Run(ctx context.Context) error {
	return c.with(ctx, func(pool *pgxpool.Pool) error {
		key, apiKey, err := accounts.CreateKey(ctx, pool, c.Account)
		return printed(err, "API key %s of account %s, which is shown only once:\n%s\n", key.ID, c.Account, apiKey)
	})
}

type accountsKeysRevoke struct {
	ofAccount

	ID uuid.UUID `arg:"" help:"The API key's id, which accounts keys list prints."`
}

func (c accountsKeysRevoke) Run(ctx context.Context) error {
	return c.with(ctx, func(pool *pgxpool.Pool) error {
		key, err := accounts.RevokeKey(ctx, pool, c.Account, c.ID)
		if err != nil {
			return err
		}
		return printed(nil, "API key %s (%s…) was revoked at %s, UTC. It stops working within 5 seconds.\n",
			key.ID, key.Prefix, formatTime(*key.RevokedAt))
	})
}
