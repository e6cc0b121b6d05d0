package main

import (
	"context"
	"os"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/internal/accounts"
)

type accountsCreate struct {
	Name string `required:"" help:"The account's name."`
}

// Run prints the new API key as its last line.
func (c accountsCreate) Run(ctx context.Context, a *app.App) error {
	id, key, err := accounts.Create(ctx, a.Pool, c.Name)
	return printed(err, "Account %s (%q). Its API key, which is shown only once:\n%s\n", id, c.Name, key)
}

type accountsList struct{}

func (accountsList) Run(ctx context.Context, a *app.App) error {
	list, err := accounts.List(ctx, a.Pool)
	if err != nil {
		return err
	}
	return show(os.Stdout, "accounts", list)
}

// ofAccount is a command on the API keys of an account.
type ofAccount struct {
	Account uuid.UUID `required:"" placeholder:"ID" help:"The account's id."`
}

type accountsKeysList struct {
	Account uuid.UUID `placeholder:"ID" help:"List only the API keys of this account."`
}

func (c accountsKeysList) Run(ctx context.Context, a *app.App) error {
	keys, err := accounts.ListKeys(ctx, a.Pool, c.Account)
	if err != nil {
		return err
	}
	return show(os.Stdout, "api keys", keys)
}

type accountsKeysCreate struct{ ofAccount }

// Run prints the new API key as its last line.
func (c accountsKeysCreate) Run(ctx context.Context, a *app.App) error {
	id, apiKey, err := accounts.CreateKey(ctx, a.Pool, c.Account)
	return printed(err, "API key %s of account %s, which is shown only once:\n%s\n", id, c.Account, apiKey)
}

type accountsKeysRevoke struct {
	ofAccount

	ID uuid.UUID `arg:"" help:"The API key's id, which accounts keys list prints."`
}

func (c accountsKeysRevoke) Run(ctx context.Context, a *app.App) error {
	key, err := accounts.RevokeKey(ctx, a.Pool, c.Account, c.ID)
	if err != nil {
		return err
	}
	return printed(nil, "API key %s (%s…) was revoked at %s, UTC. It stops working within 5 seconds.\n",
		key.ID, key.Prefix, key.RevokedAt.UTC().Format(time.DateTime))
}
