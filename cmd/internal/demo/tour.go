package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"example.com/orders-api/receipts"
)

// tour is one run of [Tour].
type tour struct {
	*system
	out     io.Writer
	started time.Time
	rows    []*row
}

// row is a claim with its order.
type row struct {
	text     string
	play     *play
	order    state
	requests int
}

// Tour runs the scenario of each claim and prints a line for it. It stops at the first
// claim that does not hold. After each claim it compares all orders so far with the
// provider's list of payments.
func Tour(ctx context.Context, options Options, out io.Writer) error {
	s, err := newSystem(ctx, options, nil)
	if err != nil {
		return err
	}
	t := &tour{system: s, out: out, started: time.Now()}
	err = errors.Join(t.run(ctx), s.close())
	if ctx.Err() != nil {
		return fmt.Errorf("demo: %w", ctx.Err())
	}
	return err
}

func (t *tour) run(ctx context.Context) error {
	worker, err := receipts.NewWorker(t.Pool, t.mailbox, receipts.Config{From: "Orders <receipts@example.com>"}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { _ = worker.Run(working, 100*time.Millisecond) })
	defer group.Wait()
	defer stop()
	for _, c := range claims() {
		if err := t.prove(ctx, c); err != nil {
			return t.failed(ctx, c.text, err)
		}
	}
	stop()
	group.Wait()
	const text = "each receipt arrives once"
	if _, err := worker.RunOnce(ctx); err != nil { // sends a receipt that is still staged
		return t.failed(ctx, text, err)
	}
	if err := t.countReceipts(ctx, text); err != nil {
		return t.failed(ctx, text, err)
	}
	t.printTable()
	return nil
}

func (t *tour) failed(ctx context.Context, text string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // interrupted
	}
	fmt.Fprintf(t.out, " ✗ %s\n", text)
	return fmt.Errorf("%s: %w", text, err)
}

// prove runs the scenario of a claim.
func (t *tour) prove(ctx context.Context, c claim) error {
	chosen, err := t.choose(c.card, c.fault, c.customer)
	var skipped errNeedsStandIn
	if errors.As(err, &skipped) {
		fmt.Fprintf(t.out, " – %-42s skipped: %s\n", c.text, skipped.reason)
		return nil
	}
	if err != nil {
		return err
	}
	p := newPlay(t.system, chosen)
	if err := errors.Join(p.run(ctx), p.failed()); err != nil {
		return err
	}
	r := &row{text: c.text, play: p}
	for _, request := range p.view.Requests {
		r.requests += len(request.Responses)
	}
	if r.order, err = p.readState(ctx); err != nil {
		return err
	}
	t.rows = append(t.rows, r)
	if err := t.audit(ctx); err != nil {
		return err
	}
	fmt.Fprintf(t.out, " ✓ %-42s %s\n", c.text, p.summary())
	return nil
}

// audit compares the provider's list of payments and the orders that the API lists with
// the orders of the tour: each has exactly the charges that its response reported.
func (t *tour) audit(ctx context.Context) error {
	listed, err := t.client.ListOrders(ctx, 100, "") // a tour creates less than a page
	if err != nil {
		return err
	}
	if len(listed.Data) != len(t.rows) {
		return fmt.Errorf("the API lists %d orders, expected %d", len(listed.Data), len(t.rows))
	}
	intents, err := t.listPayments(ctx, t.started, "order_id")
	if err != nil {
		return err
	}
	for _, row := range t.rows {
		id := row.order.order.ID.String()
		if n, _ := charged(intents[id]); n != row.play.charges() {
			return fmt.Errorf("order %s: the provider has %d charges, expected %d", id, n, row.play.charges())
		}
	}
	return nil
}

// countReceipts checks that each paid order has one receipt and no other order has one.
func (t *tour) countReceipts(ctx context.Context, text string) error {
	total := 0
	for _, row := range t.rows {
		var err error
		if row.order, err = row.play.readState(ctx); err != nil {
			return err
		}
		if n := len(row.order.mails); n != row.play.charges() || row.order.row.jobs != 0 {
			return fmt.Errorf("order %s: %d receipts and %d staged, expected %d", row.order.order.ID, n, row.order.row.jobs, row.play.charges())
		}
		total += len(row.order.mails)
	}
	fmt.Fprintf(t.out, " ✓ %-42s %d mails for %d paid orders\n", text, total, total)
	return nil
}

// printTable prints the counts of all claims.
func (t *tour) printTable() {
	const line = "   %-42s %8d  %6d  %7d  %8d\n"
	fmt.Fprintf(t.out, "\n   %-42s %8s  %6s  %7s  %8s\n", "", "requests", "orders", "charges", "receipts")
	var requests, orders, charges, receipts int
	for _, r := range t.rows {
		fmt.Fprintf(t.out, line, r.text, r.requests, r.order.row.orders, r.play.charges(), len(r.order.mails))
		requests, orders = requests+r.requests, orders+r.order.row.orders
		charges, receipts = charges+r.play.charges(), receipts+len(r.order.mails)
	}
	fmt.Fprintf(t.out, line, "total", requests, orders, charges, receipts)
}
