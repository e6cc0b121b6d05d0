package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"example.com/orders-api/orders/reconcile"
)

// notCompared is the error of an incomplete comparison: the exit code is 2.
type notCompared struct{ error }

func (e notCompared) Error() string { return "records were not compared: " + e.error.Error() }
func (e notCompared) Unwrap() error { return e.error }
func (notCompared) ExitCode() int   { return 2 }

type reconciliation struct {
	by

	Since    time.Duration `default:"48h" help:"How far back to compare."`
	Fix      bool          `help:"Cancel orphaned intents; with --lost-rows, also expire the keys of charges whose order is lost."`
	LostRows bool          `help:"After a failover or a restore, while no other process runs: include recent activity and unknown accounts."`
	JSON     bool          `help:"Print one JSON object."`
}

// Run creates the app itself, because the exit code is 2 for each error that prevents the comparison.
func (c reconciliation) Run(ctx context.Context, selected *kong.Context) error {
	report, err := c.compare(ctx, selected)
	if err == nil {
		err = printReport(os.Stdout, report, c.JSON)
	}
	if err != nil {
		return notCompared{err}
	}
	if open := report.Open(); open > 0 {
		return fmt.Errorf("discrepancies: %d", open)
	}
	return nil
}

func (c reconciliation) compare(ctx context.Context, selected *kong.Context) (reconcile.Report, error) {
	a, err := newApp(ctx, selected)
	if err != nil {
		return reconcile.Report{}, err
	}
	defer a.Close()
	grace := a.Config.CompleterGrace
	if c.Since <= grace {
		return reconcile.Report{}, fmt.Errorf("--since %s is not more than COMPLETER_GRACE, %s, within which activity is ignored", c.Since, grace)
	}
	if err := errors.Join(a.TryProvider(ctx), a.StartMonitor(ctx)); err != nil {
		return reconcile.Report{}, err
	}
	return a.Changes.Compare(ctx, reconcile.Options{
		Since:    c.Since,
		Grace:    grace,
		LostRows: c.LostRows,
		Fix:      c.Fix,
		Actor:    c.By,
	})
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
	_, err := fmt.Fprintf(w, "Compared %d intents and %d refunds from %s to %s. Discrepancies: %d, fixed: %d. Foreign intents: %d.\n",
		report.Intents, report.Refunds, report.Since.Format(time.RFC3339), report.Until.Format(time.RFC3339),
		len(report.Discrepancies), len(report.Discrepancies)-report.Open(), report.ForeignIntents)
	return err
}
