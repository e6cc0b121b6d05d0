package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/internal/cli"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/audit"
	"example.com/orders-api/orders/provider"
	"example.com/orders-api/orders/refunds"
)

const maxShownRefunds = 100 // the newest of an order

type keysList struct {
	cli.Env[setup.Maintenance]

	Limit cli.Count `default:"100" help:"How many keys to list at most."`
}

func (c keysList) Run(ctx context.Context) error {
	config, err := c.Load()
	if err != nil {
		return err
	}
	pool, engine, err := app.OpenEngine(ctx, config, config.Logger(os.Stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	stuck, err := engine.Stuck(ctx, config.CompleterGrace, int(c.Limit))
	if err != nil {
		return err
	}
	const header = "KEY\tACCOUNT\tOPERATION\tRECOVERY POINT\tSTATE\tRUNS\tCREATED\tLAST RUN\tLAST ERROR"
	return printTable(header, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s", stuck, func(key idempotency.StoredKey) []any {
		return []any{
			key.ID, key.AccountID, key.Operation, key.Point, key.State(),
			key.Attempt, formatTime(key.CreatedAt), formatTime(key.LastRunAt), key.LastError,
		}
	})
}

// keyName is the argument of a command on one key.
type keyName struct {
	ID      string    `arg:"" help:"The key, its id, an order's or refund's id, a reference, or a provider's id."`
	Account uuid.UUID `placeholder:"ID" help:"Search only the account with this id."`
}

// foundKey is the key that an operator's name selects.
type foundKey struct {
	operations.KeyStatus
	as string // what the name names
}

// findKey searches the keys, and what they created. A client may choose another one's id as its
// key, so several matches are listed instead of guessed.
func findKey(
	ctx context.Context, pool *pgxpool.Pool, engine *idempotency.Engine, registered *operations.Service, account uuid.UUID, name string,
) (foundKey, error) {
	keys, err := engine.Find(ctx, account, name)
	if err != nil {
		return foundKey{}, err
	}
	found := map[uuid.UUID]foundKey{}
	for _, key := range keys {
		found[key.ID] = foundKey{operations.KeyStatus{StoredKey: key, Links: registered.Links(key)}, "idempotency key"}
	}
	if len(keys) != 1 || keys[0].ID.String() != name {
		accountIDs := []uuid.UUID{account}
		if account == uuid.Nil {
			list, err := accounts.List(ctx, pool)
			if err != nil {
				return foundKey{}, err
			}
			accountIDs = nil
			for _, one := range list {
				accountIDs = append(accountIDs, one.ID)
			}
		}
		objects, err := registered.Find(ctx, accountIDs, name)
		if err != nil {
			return foundKey{}, err
		}
		for _, object := range objects {
			key, err := registered.KeyStatus(ctx, object.AccountID, object.Key)
			if err != nil {
				return foundKey{}, fmt.Errorf("%s of account %s: %w", object.What, object.AccountID, err)
			}
			if _, known := found[key.ID]; !known {
				found[key.ID] = foundKey{key, object.What}
			}
		}
		lost, err := engine.Lost(ctx, accountIDs, name)
		if err != nil {
			return foundKey{}, err
		}
		for _, key := range lost {
			found[key.ID] = foundKey{operations.KeyStatus{StoredKey: key, Expired: true}, "key whose rows were lost, expired by an operator"}
		}
	}
	switch len(found) {
	case 0:
		return foundKey{}, errors.New("no key, order or refund has this id, reference or provider's id")
	case 1:
		return slices.Collect(maps.Values(found))[0], nil
	}
	lines := []string{"several keys match: give the id of one, or select an account with --account"}
	for id, key := range found {
		lines = append(lines, fmt.Sprintf("  %s  account %s  %s", id, key.AccountID, key.as))
	}
	slices.Sort(lines[1:])
	return foundKey{}, errors.New(strings.Join(lines, "\n"))
}

type keysShow struct {
	cli.Env[setup.Maintenance]
	keyName
}

func (c keysShow) Run(ctx context.Context) error {
	config, err := c.Load()
	if err != nil {
		return err
	}
	pool, engine, err := app.OpenEngine(ctx, config, config.Logger(os.Stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	described := app.NewServices(setup.App{Maintenance: config}, engine, pool, provider.Calls{}, nil)
	key, err := findKey(ctx, pool, engine, described.Operations, c.Account, c.ID)
	if err != nil {
		return err
	}
	h := history{foundKey: key}
	resources := []uuid.UUID{key.ID}
	for _, resource := range key.Links {
		resources = append(resources, resource.ID)
	}
	if order := key.Links["order"]; order != nil {
		of := operations.Target{AccountID: key.AccountID, Parent: order.ID}
		for refund, err := range described.Refunds.List(ctx, of, operations.Page{Limit: maxShownRefunds}) {
			if err != nil {
				return err
			}
			h.refunds = append(h.refunds, refund.(refunds.Refund))
			resources = append(resources, refund.(refunds.Refund).ID)
		}
	}
	if h.failed, err = engine.FailedRuns(ctx, key.AccountID, key.ID); err != nil {
		return err
	}
	if h.records, err = audit.Records(ctx, pool, key.AccountID, resources...); err != nil {
		return err
	}
	return h.print(os.Stdout)
}

// onApp is a command that calls the provider.
type onApp struct{ cli.Env[setup.App] }

func (c onApp) with(ctx context.Context, run func(*app.App) error) error {
	config, err := c.Load()
	if err != nil {
		return err
	}
	a, err := app.Open(ctx, config, config.Logger(os.Stderr))
	if err != nil {
		return err
	}
	defer a.Close()
	return run(a)
}

// operatorAction is a command of an operator on one key.
type operatorAction struct {
	onApp
	keyName
	by

	Reason cli.Text `required:"" help:"The reason, for the audit record."`
}

type (
	keysRetry   struct{ operatorAction }
	keysResolve struct{ operatorAction }
)

func (c keysRetry) Run(ctx context.Context) error { return c.run(ctx, (*operations.Service).Retry) }

func (c keysResolve) Run(ctx context.Context) error { return c.run(ctx, (*operations.Service).Resolve) }

func (c operatorAction) run(
	ctx context.Context,
	action func(*operations.Service, context.Context, uuid.UUID, uuid.UUID, audit.Operator) (idempotency.Result, error),
) error {
	return c.with(ctx, func(a *app.App) error {
		key, err := findKey(ctx, a.Pool, a.Engine, a.Operations, c.Account, c.ID)
		if err != nil {
			return err
		}
		if key.Expired {
			return fmt.Errorf("key %s has expired, so nothing continues it", key.ID)
		}
		if key.Point == idempotency.Finished {
			return fmt.Errorf("key %s is finished, and its response %d does not change", key.ID, key.ResponseCode)
		}
		result, err := action(a.Operations, ctx, key.AccountID, key.ID, audit.Operator{Actor: string(c.By), Reason: string(c.Reason)})
		if err != nil {
			return fmt.Errorf("key %s is still unfinished, at %s: %w", key.ID, cmp.Or(result.To, key.Point), err)
		}
		return printed(nil, "Key %s is finished. Its response, to every retry:\n%d %s\n", key.ID, result.Response.Status, result.Response.Body)
	})
}

// history is what is known about a key and what it created.
type history struct {
	foundKey
	refunds []refunds.Refund
	failed  []idempotency.FailedRun
	records []audit.Record
}

func (h history) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, arguments ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, arguments...))
	}
	line("found", "%s", h.as)
	line("key", "%s", h.ID)
	line("account", "%s", h.AccountID)
	if h.Key != "" {
		line("Idempotency-Key", "%s", h.Key)
	}
	line("operation", "%s", h.Operation)
	line("state", "%s", h.State())
	if !h.Expired {
		line("recovery point", "%s", h.Point)
		line("runs", "%d", h.Attempt)
	}
	if h.ClockAhead {
		line("clock", "a time of this key is in the future: the database's clock ran ahead when it was stored")
	}
	if h.LastError != "" {
		line("last error", "%s", h.LastError)
	}
	for _, member := range slices.Sorted(maps.Keys(h.Links)) {
		line(member, "%s, at %s", h.Links[member].ID, h.Links[member].Href)
	}
	for _, refund := range h.refunds {
		line("refund of the order", "%s, %s, %d %s", refund.ID, refund.Status, refund.Amount, refund.Currency)
	}
	fmt.Fprintln(table, "\nTimeline, UTC")
	for _, event := range h.timeline() {
		line(formatTime(event.at), "%s", event.text)
	}
	return table.Flush()
}

type timelineEvent struct {
	at   time.Time
	text string
}

func (h history) timeline() []timelineEvent {
	events := []timelineEvent{{h.CreatedAt, "key claimed"}}
	for _, record := range h.records {
		text := fmt.Sprintf("%s %s", record.Action, record.Data)
		if record.ClientIP != "" {
			text += " from " + record.ClientIP
		}
		events = append(events, timelineEvent{record.CreatedAt, text})
	}
	for _, run := range h.failed {
		events = append(events, timelineEvent{run.At, fmt.Sprintf("run %d failed at %s: %s", run.Attempt, run.Point, run.Error)})
	}
	if h.Attempt > 1 {
		events = append(events, timelineEvent{h.LastRunAt, fmt.Sprintf("run %d, the last one so far", h.Attempt)})
	}
	if h.NeedsReviewAt != nil {
		events = append(events, timelineEvent{*h.NeedsReviewAt, "no attempts of the completer are left: needs review"})
	}
	if h.FinishedAt != nil && h.Expired {
		events = append(events, timelineEvent{*h.FinishedAt, "finished; the response is deleted, because the key has expired"})
	} else if h.FinishedAt != nil {
		events = append(events, timelineEvent{*h.FinishedAt, fmt.Sprintf("finished, response %d stored", h.ResponseCode)})
	}
	slices.SortStableFunc(events, func(a, b timelineEvent) int { return cmp.Compare(a.at.UnixMicro(), b.at.UnixMicro()) })
	return events
}
