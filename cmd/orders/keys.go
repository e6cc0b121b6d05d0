package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/user"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
)

const keyAccountUsage = "the `id` of the key's account, needed if several accounts use the same key"

func keysList(ctx context.Context, call *invocation) error {
	var config setup.Maintenance
	limit := call.flags.Int("limit", 100, "how many keys to list at most")
	if err := call.load(&config, "limit"); err != nil {
		return err
	}
	pool, engine, err := openEngine(ctx, config, config.Logger(call.stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	stuck, err := engine.Stuck(ctx, config.CompleterGrace, *limit)
	if err != nil {
		return err
	}
	return printKeys(call.stdout, stuck)
}

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
	var config setup.Maintenance
	call.argument = "KEY"
	account := accountFlag(call, keyAccountUsage)
	if err := call.load(&config); err != nil {
		return err
	}
	pool, engine, err := openEngine(ctx, config, config.Logger(call.stderr))
	if err != nil {
		return err
	}
	defer pool.Close()
	key, err := findKey(ctx, engine, account.UUID, call.value)
	if err != nil {
		return err
	}
	links := describedOperations(config, pool, engine).Links(key)
	records, err := operations.AuditRecords(ctx, pool, key.AccountID, key.ID, links)
	if err != nil {
		return err
	}
	return printHistory(call.stdout, key, links, records)
}

// operatorCommand returns a command that retries or resolves a key.
func operatorCommand(
	action func(*operations.Service, context.Context, uuid.UUID, uuid.UUID, operations.OperatorAction) (idempotency.Result, error),
) func(context.Context, *invocation) error {
	return func(ctx context.Context, call *invocation) error {
		var config setup.App
		call.argument = "KEY"
		account := accountFlag(call, keyAccountUsage)
		by, reason := operatorFlags(call)
		if err := call.load(&config, "reason", "by"); err != nil {
			return err
		}
		a, err := openApp(ctx, config, config.Logger(call.stderr))
		if err != nil {
			return err
		}
		defer a.close()
		key, err := findKey(ctx, a.engine, account.UUID, call.value)
		if err != nil {
			return err
		}
		if key.Point == idempotency.Finished {
			return fmt.Errorf("key %s is finished, and its response %d does not change", key.ID, key.ResponseStatus)
		}
		result, err := action(a.operations, ctx, key.AccountID, key.ID, operations.OperatorAction{Actor: *by, Reason: *reason})
		if err != nil {
			return fmt.Errorf("key %s is still unfinished, at %s: %w", key.ID, cmp.Or(result.To, key.Point), err)
		}
		return call.printResult(nil, "Key %s is finished. Its response, to every retry:\n%d %s\n", key.ID, result.Response.Status, result.Response.Body)
	}
}

// operatorFlags are for the audit record. Both are required.
func operatorFlags(call *invocation) (by, reason *string) {
	return call.flags.String("by", userName(), "`name` of the operator, for the audit record"),
		call.flags.String("reason", "", "`reason`, for the audit record (required)")
}

func userName() string {
	current, err := user.Current()
	if err != nil {
		return ""
	}
	return current.Username
}

func printKeys(w io.Writer, keys []idempotency.Status) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tACCOUNT\tOPERATION\tRECOVERY POINT\tSTATE\tRUNS\tCREATED\tLAST RUN\tLAST ERROR")
	for _, key := range keys {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", key.ID, key.AccountID, key.Operation, key.Point, key.State(),
			key.Attempt, formatTime(key.CreatedAt), formatTime(key.LastRunAt), key.LastError)
	}
	return table.Flush()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.DateTime) }

func printHistory(w io.Writer, key idempotency.Status, links operations.Links, records []operations.AuditRecord) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, arguments ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, arguments...))
	}
	line("key", "%s", key.ID)
	line("account", "%s", key.AccountID)
	line("Idempotency-Key", "%s", key.Key)
	line("operation", "%s", key.Operation)
	line("state", "%s", key.State())
	line("recovery point", "%s", key.Point)
	line("runs", "%d", key.Attempt)
	if key.ClockAhead {
		line("clock", "a time of this key is in the future: the database's clock ran ahead when it was stored")
	}
	if key.LastError != "" {
		line("last error", "%s", key.LastError)
	}
	for _, member := range slices.Sorted(maps.Keys(links)) {
		line(member, "%s, at %s", links[member].ID, links[member].Href)
	}
	fmt.Fprintln(table, "\nTimeline, UTC")
	for _, event := range timeline(key, records) {
		line(formatTime(event.at), "%s", event.text)
	}
	return table.Flush()
}

type timelineEvent struct {
	at   time.Time
	text string
}

func timeline(key idempotency.Status, records []operations.AuditRecord) []timelineEvent {
	events := []timelineEvent{{key.CreatedAt, "key claimed"}}
	for _, record := range records {
		text := fmt.Sprintf("%s %s", record.Action, record.Data)
		if record.ClientIP != "" {
			text += " from " + record.ClientIP
		}
		events = append(events, timelineEvent{record.CreatedAt, text})
	}
	if key.Attempt > 1 {
		events = append(events, timelineEvent{key.LastRunAt, fmt.Sprintf("run %d, the last one so far", key.Attempt)})
	}
	if key.NeedsReviewAt != nil {
		events = append(events, timelineEvent{*key.NeedsReviewAt, "no attempts of the completer are left: needs review"})
	}
	if key.FinishedAt != nil {
		events = append(events, timelineEvent{*key.FinishedAt, fmt.Sprintf("finished, response %d stored", key.ResponseStatus)})
	}
	slices.SortStableFunc(events, func(a, b timelineEvent) int { return cmp.Compare(a.at.UnixMicro(), b.at.UnixMicro()) })
	return events
}
