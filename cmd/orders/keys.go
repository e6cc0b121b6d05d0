package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os/user"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// keyArgument is how the commands below name a key.
const keyArgument = "KEY"

// keysList prints what is stuck.
func keysList(ctx context.Context, call invocation) error {
	var config boot.Upkeep
	flags := call.flags()
	limit := flags.Int("limit", 100, "the most keys to list")
	asJSON := flags.Bool("json", false, "print a JSON array")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *limit < 1 {
		return wrongUsage(call.name, "--limit must be positive")
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	return withEngine(ctx, config, config.Logger(call.stderr), func(engine *idempotency.Engine, _ *pgxpool.Pool) error {
		stuck, err := engine.Stuck(ctx, config.CompleterGrace.Duration, *limit)
		if err != nil {
			return err
		}
		if *asJSON {
			return printKeysJSON(call.stdout, stuck)
		}
		return printKeys(call.stdout, stuck)
	})
}

// accountFlag narrows a key down, where several accounts used the same one.
func accountFlag(flags *flag.FlagSet, account *uuid.UUID) {
	flags.Func("account", "the `id` of the key's account, where several accounts use the same key", func(text string) error {
		var err error
		*account, err = uuid.Parse(text)
		return err
	})
}

// findKey returns the one key that an operator means.
func findKey(ctx context.Context, engine *idempotency.Engine, account uuid.UUID, name string) (idempotency.Status, error) {
	found, err := engine.Find(ctx, account, name)
	switch {
	case err != nil:
		return idempotency.Status{}, err
	case len(found) == 0:
		return idempotency.Status{}, errors.New("there is no such key, or it was deleted after its retention")
	case len(found) > 1:
		return idempotency.Status{}, errors.New("several accounts use that key: name one with --account, or the key by its id")
	}
	return found[0], nil
}

// keysShow prints one key's story.
func keysShow(ctx context.Context, call invocation) error {
	var config boot.Upkeep
	var account uuid.UUID
	flags := call.flags()
	accountFlag(flags, &account)
	arguments, err := call.parseArguments(flags, &config, keyArgument)
	if err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	return withEngine(ctx, config, config.Logger(call.stderr), func(engine *idempotency.Engine, pool *pgxpool.Pool) error {
		key, err := findKey(ctx, engine, account, arguments[0])
		if err != nil {
			return err
		}
		story, err := orders.History(ctx, pool, key.AccountID, key.Key)
		if err != nil {
			return err
		}
		return printStory(call.stdout, key, story)
	})
}

func keysRetry(ctx context.Context, call invocation) error {
	return act(ctx, call, (*orders.Service).Retry)
}

func keysResolve(ctx context.Context, call invocation) error {
	return act(ctx, call, (*orders.Service).Resolve)
}

// act does something to a key in the name of a person.
func act(ctx context.Context, call invocation, do func(*orders.Service, context.Context, uuid.UUID, uuid.UUID, orders.OperatorAction) (idempotency.Result, error)) error {
	var config boot.Keys
	var account uuid.UUID
	flags := call.flags()
	accountFlag(flags, &account)
	by := flags.String("by", userName(), "`who` does it, for the audit record")
	reason := flags.String("reason", "", "`why`, for the audit record (needed)")
	arguments, err := call.parseArguments(flags, &config, keyArgument)
	if err != nil {
		return err
	}
	switch {
	case *reason == "":
		return wrongUsage(call.name, "orders %s needs --reason", call.name)
	case *by == "":
		return wrongUsage(call.name, "orders %s needs --by", call.name)
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	return withBackend(ctx, config.Database, config.Stripe, config.Durations, config.Logger(call.stderr), func(b *backend) error {
		key, err := findKey(ctx, b.engine, account, arguments[0])
		if err != nil {
			return err
		}
		if key.Point == idempotency.Finished {
			return fmt.Errorf("key %s is finished, its answer is %d and stays so", key.ID, key.ResponseStatus)
		}
		result, err := do(b.orders, ctx, key.AccountID, key.ID, orders.OperatorAction{Actor: *by, Reason: *reason})
		if err != nil {
			return fmt.Errorf("key %s stays unfinished, at %s: %w", key.ID, cmp.Or(result.To, key.Point), err)
		}
		_, err = fmt.Fprintf(call.stdout, "Key %s is finished. Its answer, to every retry:\n%d %s\n", key.ID, result.Response.Status, result.Response.Body)
		return err
	})
}

// userName is who runs this program, "" when the system does not say.
func userName() string {
	current, err := user.Current()
	if err != nil {
		return ""
	}
	return current.Username
}
