package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/orders/reconcile"
)

// notCompared is the error of a comparison that is not complete: the exit code is 2.
type notCompared struct{ error }

func (e notCompared) Error() string { return "records were not compared: " + e.error.Error() }
func (notCompared) ExitCode() int   { return 2 }

type reconciliation struct {
	by

	Since    time.Duration `default:"48h" help:"How far back to compare."`
	Fix      bool          `help:"Cancel orphaned intents; with --lost-rows, also expire the keys of charges whose order is lost."`
	LostRows bool          `help:"After a failover or a restore, while no other process runs: include recent activity and unknown accounts."`
}

// Run prints an object for each discrepancy and then the counts.
func (c reconciliation) Run(ctx context.Context, a *app.App) error {
	report, err := c.compare(ctx, a)
	if err != nil {
		return notCompared{err}
	}
	encoder := json.NewEncoder(os.Stdout)
	for _, discrepancy := range report.Discrepancies {
		if err := encoder.Encode(discrepancy); err != nil {
			return err
		}
	}
	open := report.Open()
	err = printed(nil, "Compared %d intents and %d refunds from %s to %s. Discrepancies: %d, fixed: %d. Foreign intents: %d.\n",
		report.Intents, report.Refunds, report.Since.Format(time.RFC3339), report.Until.Format(time.RFC3339),
		len(report.Discrepancies), len(report.Discrepancies)-open, report.ForeignIntents)
	if open > 0 {
		return fmt.Errorf("discrepancies: %d", open)
	}
	return err
}

func (c reconciliation) compare(ctx context.Context, a *app.App) (reconcile.Report, error) {
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
