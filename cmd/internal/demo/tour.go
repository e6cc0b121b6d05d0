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

type tour struct {
	*system
	out     io.Writer
	started time.Time
	plays   []*play
}

func runTour(ctx context.Context, options Options, out io.Writer) error {
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
	group.Go(func() {
		for working.Err() == nil {
			_, _ = worker.RunOnce(working) // the last run reports an error
			select {
			case <-working.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
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
	mails, err := t.countReceipts(ctx)
	if err != nil {
		return t.failed(ctx, text, err)
	}
	fmt.Fprintf(t.out, " ✓ %-42s %d mails for %d paid orders\n", text, mails, mails)
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

func (t *tour) prove(ctx context.Context, c claim) error {
	chosen, err := t.choose(c.card, c.fault)
	var skipped errNeedsStandIn
	if errors.As(err, &skipped) {
		fmt.Fprintf(t.out, " – %-42s skipped: %s\n", c.text, skipped.reason)
		return nil
	}
	if err != nil {
		return err
	}
	chosen.claim, chosen.customer = c.text, c.customer
	p := newPlay(t.system, chosen)
	if err := errors.Join(p.run(ctx), p.failed()); err != nil {
		return err
	}
	t.plays = append(t.plays, p)
	if err := t.audit(ctx); err != nil {
		return err
	}
	outcome := "not charged"
	if p.charges() == 1 { // as audit has verified
		outcome = "charged " + dollars(quantity*unitAmount) + " once"
	}
	fmt.Fprintf(t.out, " ✓ %-42s %s: %s\n", c.text, p.summary(), outcome)
	return nil
}

// audit checks that the API lists each order so far, and that the provider lists exactly
// the charges that its response reported.
func (t *tour) audit(ctx context.Context) error {
	listed, err := t.client.ListOrders(ctx, 100, "") // a tour creates less than a page
	if err != nil {
		return err
	}
	if len(listed.Data) != len(t.plays) {
		return fmt.Errorf("the API lists %d orders, expected %d", len(listed.Data), len(t.plays))
	}
	intents, err := t.listPayments(ctx, t.started, "order_id")
	if err != nil {
		return err
	}
	for _, p := range t.plays {
		id := p.end.order.ID.String()
		if n, _ := charged(intents[id]); n != p.charges() {
			return fmt.Errorf("order %s: the provider has %d charges, expected %d", id, n, p.charges())
		}
	}
	return nil
}

// countReceipts checks that each paid order, and no other, has one receipt.
func (t *tour) countReceipts(ctx context.Context) (total int, err error) {
	for _, p := range t.plays {
		if p.end, err = p.readState(ctx); err != nil {
			return 0, err
		}
		n, staged := len(p.end.mails), p.end.row.jobs
		if n != p.charges() || staged != 0 {
			return 0, fmt.Errorf("order %s: %d receipts and %d staged, expected %d", p.end.order.ID, n, staged, p.charges())
		}
		total += n
	}
	return total, nil
}

func (t *tour) printTable() {
	const line = "   %-42s %8d  %6d  %7d  %8d\n"
	fmt.Fprintf(t.out, "\n   %-42s %8s  %6s  %7s  %8s\n", "", "requests", "orders", "charges", "receipts")
	var total [4]int
	for _, p := range t.plays {
		counts := [4]int{0, p.end.row.orders, p.charges(), len(p.end.mails)}
		for _, request := range p.view.Requests {
			counts[0] += len(request.Responses)
		}
		for column, n := range counts {
			total[column] += n
		}
		fmt.Fprintf(t.out, line, p.claim, counts[0], counts[1], counts[2], counts[3])
	}
	fmt.Fprintf(t.out, line, "total", total[0], total[1], total[2], total[3])
}
