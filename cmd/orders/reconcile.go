package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/orders/reconcile"
)

// errNotCompared means that the comparison is incomplete: the exit code is 2.
var errNotCompared = errors.New("records were not compared")

func runReconcile(ctx context.Context, call invocation) error {
	var config boot.KeyCommands
	flags := call.flags()
	since := flags.Duration("since", 48*time.Hour, "how far back to compare; stuck keys are reported at any age")
	fix := flags.Bool("fix", false, "cancel orphaned intents and apply the provider's refund status; with --lost-rows, also expire the keys of charges whose order is lost")
	lostRows := flags.Bool("lost-rows", false, "after a failover or a restore, while no other process runs: include recent activity and unknown accounts")
	asJSON := flags.Bool("json", false, "print a JSON object")
	if _, err := call.parse(flags, &config); err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	if grace := config.CompleterGrace.Duration; *since <= grace {
		return wrongUsage(call.name, "--since %s is not more than COMPLETER_GRACE, %s, within which activity is ignored", *since, grace)
	}
	logger := config.Logger(call.stderr)
	var report reconcile.Report
	err := withApp(ctx, config.Database, config.Stripe, config.Durations, logger, func(a *app) error {
		r, err := reconcile.New(reconcile.Config{
			Orders:   a.orders,
			Engine:   a.engine,
			Pool:     a.pool,
			Payments: a.payments,
			Logger:   logger,
			Since:    *since,
			Grace:    config.CompleterGrace.Duration,
			LostRows: *lostRows,
			Fix:      *fix,
		})
		if err != nil {
			return err
		}
		report, err = r.Run(ctx)
		return err
	})
	if err == nil {
		err = printReport(call.stdout, report, *asJSON)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	if open := report.Open(); open > 0 {
		return fmt.Errorf("discrepancies: %d", open)
	}
	return nil
}

func printReport(w io.Writer, report reconcile.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(report)
	}
	if err := printDiscrepancies(w, report.Discrepancies); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Compared %d intents, %d orders and %d refunds from %s to %s. Discrepancies: %d, fixed: %d. Foreign intents: %d, of unknown accounts: %d.\n",
		report.Intents, report.Orders, report.Refunds, report.Since.Format(time.RFC3339), report.Until.Format(time.RFC3339),
		len(report.Discrepancies), len(report.Discrepancies)-report.Open(), report.ForeignIntents, report.UnknownIntents)
	return err
}

func printDiscrepancies(w io.Writer, discrepancies []reconcile.Discrepancy) error {
	if len(discrepancies) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tACCOUNT\tORDER\tKEY\tINTENT\tREFUND\tCREATED\tLOCAL\tPROVIDER\tDETAIL")
	for _, d := range discrepancies {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			d.Kind, idCell(d.AccountID), idCell(d.OrderID), idCell(d.KeyID), cell(d.IntentID), cell(d.ProviderRefundID),
			timeCell(d.Created), moneyCell(d.Local), moneyCell(d.Provider), cell(detail(d)))
	}
	fmt.Fprintln(table)
	return table.Flush()
}

// detail describes a discrepancy and the result of its fix.
func detail(d reconcile.Discrepancy) string {
	switch {
	case d.Fixed:
		return d.Detail + "; FIXED"
	case d.FixError != "":
		return d.Detail + "; NOT FIXED, " + d.FixError
	default:
		return d.Detail
	}
}

func idCell(id uuid.UUID) string {
	if id == uuid.Nil {
		return cell("")
	}
	return id.String()
}

func timeCell(t time.Time) string {
	if t.IsZero() {
		return cell("")
	}
	return t.Format(time.RFC3339)
}

func moneyCell(m reconcile.Money) string {
	if m == (reconcile.Money{}) {
		return cell("")
	}
	return cell(fmt.Sprintf("%d %s", m.Amount, m.Currency))
}

// cell replaces what would break a table.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
