package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

const keyAccountUsage = "the `id` of the key's account, needed if several accounts use the same key"

func keysList(ctx context.Context, call *invocation) error {
	var config boot.Maintenance
	limit := call.flags.Int("limit", 100, "how many keys to list at most")
	if err := call.load(&config, "limit"); err != nil {
		return err
	}
	return withEngine(ctx, config, config.Logger(call.stderr), func(engine *idempotency.Engine, _ *pgxpool.Pool) error {
		stuck, err := engine.Stuck(ctx, config.CompleterGrace, *limit)
		if err != nil {
			return err
		}
		return printKeys(call.stdout, stuck)
	})
}

// findKey returns the key with this name or id.
func findKey(ctx context.Context, engine *idempotency.Engine, account uuid.UUID, name string) (idempotency.Status, error) {
	found, err := engine.Find(ctx, account, name)
	switch {
	case err != nil:
		return idempotency.Status{}, err
	case len(found) == 0:
		return idempotency.Status{}, errors.New("there is no such key, or it was deleted after its retention")
	case len(found) > 1:
		return idempotency.Status{}, errors.New("several accounts use this key: select one with --account, or give the id of the key")
	}
	return found[0], nil
}

func keysShow(ctx context.Context, call *invocation) error {
	var config boot.Maintenance
	name := call.take("KEY")
	account := accountFlag(call, keyAccountUsage)
	if err := call.load(&config); err != nil {
		return err
	}
	return withEngine(ctx, config, config.Logger(call.stderr), func(engine *idempotency.Engine, pool *pgxpool.Pool) error {
		key, err := findKey(ctx, engine, account.UUID, *name)
		if err != nil {
			return err
		}
		history, err := orders.History(ctx, pool, key.AccountID, key.Key)
		if err != nil {
			return err
		}
		return printHistory(call.stdout, key, history)
	})
}

func keysRetry(ctx context.Context, call *invocation) error {
	return runOperatorAction(ctx, call, (*orders.Service).Retry)
}

func keysResolve(ctx context.Context, call *invocation) error {
	return runOperatorAction(ctx, call, (*orders.Service).Resolve)
}

// runOperatorAction retries or resolves a key in the name of an operator.
func runOperatorAction(
	ctx context.Context, call *invocation,
	action func(*orders.Service, context.Context, uuid.UUID, uuid.UUID, orders.OperatorAction) (idempotency.Result, error),
) error {
	var config boot.App
	name := call.take("KEY")
	account := accountFlag(call, keyAccountUsage)
	by := call.flags.String("by", userName(), "`name` of the operator, for the audit record")
	reason := call.flags.String("reason", "", "`reason`, for the audit record (required)")
	if err := call.load(&config, "reason", "by"); err != nil {
		return err
	}
	return withApp(ctx, config, config.Logger(call.stderr), func(a *app) error {
		key, err := findKey(ctx, a.engine, account.UUID, *name)
		if err != nil {
			return err
		}
		if key.Point == idempotency.Finished {
			return fmt.Errorf("key %s is finished, and its response %d does not change", key.ID, key.ResponseStatus)
		}
		result, err := action(a.orders, ctx, key.AccountID, key.ID, orders.OperatorAction{Actor: *by, Reason: *reason})
		if err != nil {
			return fmt.Errorf("key %s is still unfinished, at %s: %w", key.ID, cmp.Or(result.To, key.Point), err)
		}
		_, err = fmt.Fprintf(call.stdout, "Key %s is finished. Its response, to every retry:\n%d %s\n", key.ID, result.Response.Status, result.Response.Body)
		return err
	})
}

// userName returns the name of the current user, "" if unknown.
func userName() string {
	current, err := user.Current()
	if err != nil {
		return ""
	}
	return current.Username
}
