package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"example.com/orders-api/cmd/internal/devservices"
	"example.com/orders-api/cmd/internal/doctor"
	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/receipts"
)

// Env is the environment of a tour.
type Env struct {
	setup.Database
	setup.Stripe
}

type tour struct {
	*system
	out   io.Writer
	plays []*play
}

// Tour creates the schema and an account in the database, runs the scenario of each claim
// and prints a line for it. It stops at the first claim that does not hold.
func Tour(ctx context.Context, env Env, services *devservices.Services, out io.Writer) error {
	if err := setup.Migrate(ctx, env.Database); err != nil {
		return err
	}
	database, provider := "the database of DATABASE_URL", "a fake Stripe"
	if services.Postgres != nil {
		database = fmt.Sprintf("a private PostgreSQL, started in %.1f s", services.Took.Seconds())
	}
	if services.Stripe == nil {
		if result := doctor.Stripe(ctx, env.Stripe, 30*time.Second); result.Mark == doctor.Failure && ctx.Err() == nil {
			return fmt.Errorf("Stripe cannot be used: %s", result.Message) //nolint:staticcheck // a name
		}
		provider = "the provider at " + env.ProviderURL()
	}
	pool, err := setup.Pool(ctx, env.Database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer pool.Close()
	_, key, err := accounts.Create(ctx, pool, "demo")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "On %s, with %s.\n"+
		"The API is a process of its own. Each line is checked against the provider's list of payments.\n\n", database, provider)
	folder, err := os.MkdirTemp("", "orders-demo-")
	if err != nil {
		return err
	}
	log := filepath.Join(folder, "serve.log")
	s, err := newSystem(ctx, Options{
		Environ:     append(os.Environ(), "DATABASE_URL="+string(env.URL)),
		LogFile:     log,
		APIKey:      key,
		Pool:        pool,
		ProviderKey: string(env.SecretKey),
		ProviderURL: env.APIBase,
		Fake:        services.Stripe,
	}, nil)
	if err != nil {
		return err
	}
	t := &tour{system: s, out: out}
	err = errors.Join(t.run(ctx), s.close())
	if ctx.Err() != nil {
		err = fmt.Errorf("demo: %w", ctx.Err())
	} else if err != nil {
		return fmt.Errorf("%w\nthe log of the API is %s", err, log)
	}
	return errors.Join(err, os.RemoveAll(folder))
}

func (t *tour) run(ctx context.Context) error {
	worker, err := receipts.NewWorker(t.Pool, t.mailbox, receipts.Config{From: "Orders <receipts@example.com>"}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for working.Err() == nil {
			_, _ = worker.RunOnce(working) // a receipt that is not sent fails a claim
			_ = wait(working, 100*time.Millisecond)
		}
	}()
	defer func() {
		stop()
		<-stopped
	}()
	for _, c := range claims() {
		if err := t.prove(ctx, c); err != nil {
			return t.failed(ctx, c.text, err)
		}
	}
	const text = "each receipt arrives once"
	mails, err := t.audit(ctx)
	if err != nil {
		return t.failed(ctx, text, err)
	}
	fmt.Fprintf(t.out, " ✓ %-42s %d mails for %d paid orders\n", text, mails, mails)
	t.printTable()
	return nil
}

func (t *tour) failed(ctx context.Context, text string, err error) error {
	if ctx.Err() == nil {
		fmt.Fprintf(t.out, " ✗ %s\n", text)
	}
	return fmt.Errorf("%s: %w", text, err)
}

func (t *tour) prove(ctx context.Context, c claim) error {
	chosen, err := t.choose(c.card, c.fault)
	var skipped errNeedsFake
	if errors.As(err, &skipped) {
		fmt.Fprintf(t.out, " – %-42s skipped: %s\n", c.text, skipped.reason)
		return nil
	}
	if err != nil {
		return err
	}
	chosen.claim, chosen.customer = c.text, c.customer
	p := newPlay(t.system, chosen)
	if err := errors.Join(p.run(ctx), p.failedChecks()); err != nil {
		return err
	}
	t.plays = append(t.plays, p)
	outcome := "not charged"
	if p.charges() == 1 {
		outcome = "charged " + dollars(quantity*unitAmount) + " once"
	}
	fmt.Fprintf(t.out, " ✓ %-42s %s: %s\n", c.text, p.summary(), outcome)
	return nil
}

// audit checks at the end that the API lists the orders of all plays and no others, and that
// each paid order, and no other, has one charge and one receipt.
func (t *tour) audit(ctx context.Context) (mails int, err error) {
	listed, err := t.client.ListOrders(ctx, 100, "")
	if err != nil {
		return 0, err
	}
	if len(listed.Data) != len(t.plays) {
		return 0, fmt.Errorf("the API lists %d orders, expected %d", len(listed.Data), len(t.plays))
	}
	for _, p := range t.plays {
		if p.end, err = p.readState(ctx, ""); err != nil {
			return 0, err
		}
		charges, _ := charged(p.end.intents)
		receipts, staged := len(p.end.mails), p.end.row.jobs
		if charges != p.charges() || receipts != p.charges() || staged != 0 {
			return 0, fmt.Errorf("order %s: %d charges, %d receipts and %d staged, expected %d charges and receipts",
				p.end.order.ID, charges, receipts, staged, p.charges())
		}
		mails += receipts
	}
	return mails, nil
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
