package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/refunds"
)

type keysList struct{}

func (keysList) Run(ctx context.Context, a *app.App) error {
	keys, err := a.Engine.Unfinished(ctx)
	if err != nil {
		return err
	}
	return show(os.Stdout, "keys", map[string]any{"Keys": keys, "Grace": a.Config.CompleterGrace})
}

// keyName is the argument of a command on one key.
type keyName struct {
	ID string `arg:"" help:"The key, its id, an order's or refund's id, a reference, a provider's id, or a customer's email address."`
}

// find searches the keys, and what they created. A client may choose another one's id as its
// key, so several matches are listed instead of guessed.
func (n keyName) find(ctx context.Context, a *app.App) (history, error) {
	all, err := accounts.List(ctx, a.Pool)
	if err != nil {
		return history{}, err
	}
	var accountIDs []uuid.UUID
	for _, account := range all {
		accountIDs = append(accountIDs, account.ID)
	}
	objects, err := a.Engine.FindResources(ctx, accountIDs, n.ID)
	if err != nil {
		return history{}, err
	}
	found, gone := map[uuid.UUID]history{}, ""
	for _, object := range objects {
		key, _, err := a.Engine.Lookup(ctx, object.AccountID, object.Key)
		if errors.Is(err, idempotency.ErrNotFound) {
			gone += fmt.Sprintf("\n  %s, of account %s: the row of its key is gone", object.What, object.AccountID)
			continue
		}
		if err != nil {
			return history{}, fmt.Errorf("%s of account %s: %w", object.What, object.AccountID, err)
		}
		found[key.ID] = history{StoredKey: key, Links: httpjson.LinksOf(a.Engine, key), As: object.What}
	}
	keys, err := a.Engine.Find(ctx, accountIDs, n.ID)
	if err != nil {
		return history{}, err
	}
	for _, key := range keys {
		found[key.ID] = history{StoredKey: key, Links: httpjson.LinksOf(a.Engine, key), As: "idempotency key"}
		if key.ID.String() == n.ID {
			return found[key.ID], nil
		}
	}
	list := slices.SortedFunc(maps.Values(found), func(a, b history) int { return b.CreatedAt.Compare(a.CreatedAt) })
	switch {
	case len(list) == 0 && gone == "":
		return history{}, errors.New("nothing has this id, reference, provider's id or email address")
	case len(list) == 1 && gone == "":
		return list[0], nil
	}
	several := "these match, the newest first: give the id of one"
	for _, key := range list {
		several += fmt.Sprintf("\n  %s  account %s  %s  %s", key.ID, key.AccountID, key.CreatedAt.UTC().Format(time.DateTime), key.As)
	}
	return history{}, errors.New(several + gone)
}

type keysShow struct{ keyName }

func (c keysShow) Run(ctx context.Context, a *app.App) error {
	h, err := c.find(ctx, a)
	if err != nil {
		return err
	}
	resources := []uuid.UUID{h.ID}
	for _, resource := range h.Links {
		resources = append(resources, resource.ID)
	}
	if order := h.Links["order"]; order != nil {
		if h.Order, err = a.Orders.Get(ctx, h.AccountID, order.ID); err != nil && !errors.Is(err, httpjson.ErrNotFound) {
			return err
		}
		if h.Jobs, err = jobs.With(ctx, a.Pool, h.AccountID, map[string]any{"order_id": order.ID}); err != nil {
			return err
		}
		if h.Refunds, err = (&refunds.Service{Orders: a.Orders}).List(ctx, h.AccountID, order.ID, httpjson.Page{Limit: 1 << 30}); err != nil {
			return err
		}
		for _, refund := range h.Refunds {
			resources = append(resources, refund.ID)
		}
	}
	if h.Records, err = audit.Records(ctx, a.Pool, h.AccountID, resources...); err != nil {
		return err
	}
	return show(os.Stdout, "history", h)
}

// operatorAction is a command of an operator on one key.
type operatorAction struct {
	keyName
	operator
}

type (
	keysRetry   struct{ operatorAction }
	keysResolve struct{ operatorAction }
)

func (c keysRetry) Run(ctx context.Context, a *app.App) error {
	return c.run(ctx, a, "key.retry", a.Engine.Retry)
}

func (c keysResolve) Run(ctx context.Context, a *app.App) error {
	return c.run(ctx, a, "key.resolve", func(ctx context.Context, accountID, keyID uuid.UUID, record func(*pgx.Batch)) (idempotency.Result, error) {
		return a.Engine.Resolve(ctx, accountID, keyID, c.By, record)
	})
}

type action = func(ctx context.Context, accountID, keyID uuid.UUID, record func(*pgx.Batch)) (idempotency.Result, error)

func (c operatorAction) run(ctx context.Context, a *app.App, name string, do action) error {
	if err := a.TryProvider(ctx); err != nil {
		return err
	}
	key, err := c.find(ctx, a)
	if err != nil {
		return err
	}
	if key.Expired || key.Point == idempotency.Finished {
		return fmt.Errorf("key %s is %s, so nothing continues it", key.ID, key.State())
	}
	result, err := do(ctx, key.AccountID, key.ID, func(batch *pgx.Batch) {
		audit.WriteKeyTx(batch, key.AccountID, key.ID, name, c.audit())
	})
	if err != nil {
		return fmt.Errorf("key %s is still unfinished, at %s: %w", key.ID, cmp.Or(result.To, key.Point), err)
	}
	return printed(nil, "Key %s is finished. Its response, to every retry:\n%d %s\n", key.ID, result.Response.Status, result.Response.Body)
}

// history is what is known about the key that a name selects, and what it created.
type history struct {
	idempotency.StoredKey
	Links httpjson.Links
	As    string // what the name names

	Order   orders.Order // its Status is empty if there is none
	Jobs    []jobs.Job
	Refunds []refunds.Refund
	Records []audit.Record // the oldest first
}
