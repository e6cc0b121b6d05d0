package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/orders/reconcile"
)

// errNotCompared means that the comparison is incomplete: the exit code is 2.
var errNotCompared = errors.New("records were not compared")

func runReconcile(ctx context.Context, call *invocation) error {
	var config setup.App
	since := call.flags.Duration("since", 48*time.Hour, "how far back to compare")
	fix := call.flags.Bool("fix", false, "cancel orphaned intents and apply the provider's refund status; with --lost-rows, also expire the keys of charges whose order is lost")
	lostRows := call.flags.Bool("lost-rows", false, "after a failover or a restore, while no other process runs: include recent activity and unknown accounts")
	by := byFlag(call)
	asJSON := call.flags.Bool("json", false, "print one JSON object")
	if err := call.parse(&config); err != nil {
		return err
	}
	if err := setup.Load(&config); err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	if grace := config.CompleterGrace; *since <= grace {
		return wrongUsage(call.name, "--since %s is not more than COMPLETER_GRACE, %s, within which activity is ignored", *since, grace)
	}
	a, err := openApp(ctx, config, config.Logger(call.stderr))
	if err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	defer a.close()
	if err := a.startMonitor(ctx, setup.CheckSchema); err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	report, err := reconcile.Run(ctx, reconcile.Config{
		Orders:   a.orders,
		Refunds:  a.refunds,
		Engine:   a.engine,
		Pool:     a.pool,
		Payments: a.payments,
		Logger:   a.logger,
		Since:    *since,
		Grace:    config.CompleterGrace,
		LostRows: *lostRows,
		Fix:      *fix,
		Actor:    *by,
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

// printReport prints an object for each discrepancy and then the counts, or one object.
func printReport(w io.Writer, report reconcile.Report, asJSON bool) error {
	encoder := json.NewEncoder(w)
	if asJSON {
		return encoder.Encode(report)
	}
	for _, discrepancy := range report.Discrepancies {
		if err := encoder.Encode(discrepancy); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "Compared %d intents, %d orders and %d refunds from %s to %s. Discrepancies: %d, fixed: %d. Foreign intents: %d, of unknown accounts: %d.\n",
		report.Intents, report.Orders, report.Refunds, report.Since.Format(time.RFC3339), report.Until.Format(time.RFC3339),
		len(report.Discrepancies), len(report.Discrepancies)-report.Open(), report.ForeignIntents, report.UnknownIntents)
	return err
}
