package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

func printKeys(w io.Writer, keys []idempotency.Status) error {
	if len(keys) == 0 {
		_, err := fmt.Fprintln(w, "No key is abandoned or needs review.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tACCOUNT\tOPERATION\tRECOVERY POINT\tSTATE\tRUNS\tCREATED\tLAST RUN\tLAST ERROR")
	for _, key := range keys {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", key.ID, key.AccountID, key.Operation, key.Point, key.State(),
			key.Attempt, formatTime(key.CreatedAt), formatTime(key.LastRunAt), key.LastError)
	}
	return table.Flush()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.DateTime) }

// printHistory prints a key with its order or refund, and then its events in the order
// of time.
func printHistory(w io.Writer, key idempotency.Status, history orders.KeyHistory) error {
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
	if key.LastError != "" {
		line("last error", "%s", key.LastError)
	}
	if refund := history.Refund; refund != nil {
		line("refund", "%s, %s, %d %s in the smallest unit", refund.ID, refund.Status, refund.Amount, refund.Currency)
		if refund.ProviderRefundID != nil {
			line("refund at the provider", "%s", *refund.ProviderRefundID)
		}
	}
	order := history.Order
	line("order", "%s, %s, %d %s in the smallest unit", order.ID, order.Status, order.Amount, order.Currency)
	if order.PaymentIntentID != nil {
		line("payment intent", "%s", *order.PaymentIntentID)
	}
	fmt.Fprintln(table, "\nTimeline, UTC")
	for _, event := range timeline(key, history.Records) {
		line(formatTime(event.at), "%s", event.text)
	}
	return table.Flush()
}

// timelineEvent is one event in the history of a key.
type timelineEvent struct {
	at   time.Time
	text string
}

func timeline(key idempotency.Status, records []orders.AuditRecord) []timelineEvent {
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
