package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"example.com/orders-api/cmd/internal/boot"
	"example.com/orders-api/orders"
)

// errNotCompared says that reconcile could not look, which is no finding: the
// program ends with 2.
var errNotCompared = errors.New("books and provider were not compared")

// reconcile compares the books with the provider's list and prints where they
// differ.
func reconcile(ctx context.Context, call invocation) error {
	var config boot.Keys
	flags := call.flags()
	since := flags.Duration("since", 48*time.Hour, "how far back to look; stuck keys are found at any age")
	fix := flags.Bool("fix", false, "cancel unconfirmed intents left behind, resume stuck keys and follow refunds that were settled, nothing else")
	asJSON := flags.Bool("json", false, "print a JSON object")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if err := boot.Load(&config); err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	if grace := config.CompleterGrace.Duration; *since <= grace {
		return wrongUsage(call.name, "--since %s is not more than COMPLETER_GRACE, %s, for which orders are left alone", *since, grace)
	}
	logger := config.Logger(call.stderr)
	var report orders.Report
	err := withBackend(ctx, config.Database, config.Stripe, config.Durations, logger, func(b *backend) error {
		progress, remove := progressBar(call.stderr)
		defer remove()
		var err error
		report, err = b.orders.Reconcile(ctx, orders.ReconcileConfig{
			Since:    *since,
			Grace:    config.CompleterGrace.Duration,
			Fix:      *fix,
			Progress: progress,
		})
		return err
	})
	if err == nil {
		err = printReport(call.stdout, report, *asJSON)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotCompared, err)
	}
	if open := report.Open(); open > 0 {
		return fmt.Errorf("differences between books and provider: %d", open)
	}
	return nil
}

func printReport(w io.Writer, report orders.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(report)
	}
	if len(report.Differences) > 0 {
		if err := printDifferences(w, report.Differences); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "Compared %d intents, %d orders and %d refunds from %s to %s. Differences: %d, fixed: %d. Intents of others: %d.\n",
		report.Intents, report.Orders, report.Refunds, report.Since.Format(time.RFC3339), report.Until.Format(time.RFC3339),
		len(report.Differences), len(report.Differences)-report.Open(), report.ForeignIntents)
	return err
}

func printDifferences(w io.Writer, differences []orders.Difference) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tORDER\tKEY\tINTENT\tBOOKED\tAT PROVIDER\tDETAIL")
	for _, d := range differences {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			d.Kind, idCell(d.OrderID), idCell(d.KeyID), cell(d.IntentID), moneyCell(d.Booked), moneyCell(d.AtProvider), cell(detail(d)))
	}
	fmt.Fprintln(table)
	return table.Flush()
}

// detail is how things stand, and what a fix came to.
func detail(d orders.Difference) string {
	switch {
	case d.Fix == "":
		return d.Detail
	case d.Fixed:
		return d.Detail + "; FIXED, " + d.Fix
	default:
		return d.Detail + "; NOT FIXED, " + d.Fix
	}
}

func idCell(id uuid.UUID) string {
	if id == uuid.Nil {
		return cell("")
	}
	return id.String()
}

func moneyCell(m *orders.Money) string {
	if m == nil {
		return cell("")
	}
	return cell(fmt.Sprintf("%d %s", m.Amount, m.Currency))
}

// cell keeps a text in its place, wherever it comes from.
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

// longRun is when a person begins to wonder.
const longRun = 2 * time.Second

// progressBar returns what shows a long run's progress on a terminal, and what
// takes it away again. Elsewhere it shows nothing.
func progressBar(w io.Writer) (progress func(fraction float64), remove func()) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func(float64) {}, func() {}
	}
	const parts = 1000
	bar := progressbar.NewOptions(parts,
		progressbar.OptionSetDescription("comparing"),
		progressbar.OptionSetWriter(file),
		progressbar.OptionThrottle(100*time.Millisecond),
	)
	start := time.Now()
	progress = func(fraction float64) {
		if time.Since(start) > longRun {
			_ = bar.Set(int(fraction * parts)) // a bar that cannot be drawn is no reason to fail
		}
	}
	return progress, func() { _ = bar.Clear() }
}
