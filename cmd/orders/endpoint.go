package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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

type endpointShow struct{ ofAccount }

func (c endpointShow) Run(ctx context.Context, a *app.App) error {
	e, err := events.Show(ctx, a.Pool, c.Account)
	if err != nil {
		return err
	}
	state := "works"
	switch {
	case e.DisabledAt != nil:
		state = "disabled since " + formatTime(*e.DisabledAt)
	case e.FailingSince != nil:
		state = fmt.Sprintf("fails since %s, %d times in a row", formatTime(*e.FailingSince), e.Attempt)
	}
	return printTable("ENDPOINT\tURL\tCREATED\tSECRET\tSTATE\tLAST ERROR", "%s\t%s\t%s\t%d\t%s\t%s", []events.Endpoint{e}, func(e events.Endpoint) []any {
		return []any{e.ID, e.URL, formatTime(e.CreatedAt), e.SecretVersion, state, cmp.Or(e.LastError, "-")}
	})
}

type endpointRemove struct{ ofAccount }

func (c endpointRemove) Run(ctx context.Context, a *app.App) error {
	return printed(events.Remove(ctx, a.Pool, c.Account), "The account has no endpoint any more.\n")
}
