package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/events"
)

// signing is a command that prints the secret of an account's endpoint as its last line.
type signing struct{ ofAccount }

func (signing) Environment(config *setup.Config) []any { return append(config.Keys(), &config.Events) }

func (signing) keys(a *app.App) (events.Keys, error) {
	keys := a.Config.EventKeys()
	if len(keys) == 0 {
		return nil, errors.New("EVENTS_SIGNING_KEY: not set; expected that of orders worker (generate it with openssl rand -base64 32)")
	}
	return keys, nil
}

func (s signing) print(e events.Endpoint, secret string, err error) error {
	return printed(err, "Endpoint %s of account %s: %s. The secret that signs its events:\n%s\n", e.ID, s.Account, e.URL, secret)
}

type endpointSet struct {
	signing

	URL string `required:"" placeholder:"URL" help:"The URL: https, or http on a loopback address."`
}

func (c endpointSet) Run(ctx context.Context, a *app.App) error {
	keys, err := c.keys(a)
	if err != nil {
		return err
	}
	return c.print(events.Set(ctx, a.Pool, keys, c.Account, c.URL))
}

type endpointRotate struct{ signing }

func (c endpointRotate) Run(ctx context.Context, a *app.App) error {
	keys, err := c.keys(a)
	if err != nil {
		return err
	}
	return c.print(events.Rotate(ctx, a.Pool, keys, c.Account))
}

type endpointShow struct {
	withoutProvider

	Account uuid.UUID `placeholder:"ID" help:"The account's id. Without it, the endpoints of all accounts are shown, the failing ones first."`
}

func (c endpointShow) Run(ctx context.Context, a *app.App) error {
	list, err := events.List(ctx, a.Pool, c.Account)
	if err != nil {
		return err
	}
	const header = "ACCOUNT\tENDPOINT\tURL\tCREATED\tSECRET\tSTATE\tLAST ERROR"
	return printTable(header, "%s\t%s\t%s\t%s\t%d\t%s\t%s", list, func(e events.Endpoint) []any {
		state := "enabled"
		switch {
		case e.DisabledAt != nil:
			state = "disabled since " + formatTime(*e.DisabledAt)
		case e.FailingSince != nil:
			state = fmt.Sprintf("fails since %s, %d times in a row", formatTime(*e.FailingSince), e.Attempt)
		}
		return []any{e.AccountID, e.ID, e.URL, formatTime(e.CreatedAt), e.SecretVersion, state, cmp.Or(e.LastError, "-")}
	})
}

type endpointRemove struct{ ofAccount }

func (c endpointRemove) Run(ctx context.Context, a *app.App) error {
	return printed(events.Remove(ctx, a.Pool, c.Account), "The account has no endpoint any more.\n")
}
