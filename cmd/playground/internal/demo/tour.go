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

	"example.com/orders-api/cmd/internal/setup"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/receipts"
)

type tour struct {
	*system
	out   io.Writer
	plays []*play
}

// Tour creates the schema and an account in the database. Then it runs the scenario of each claim, and
// prints a line for it. It stops at the first claim that does not hold.
func Tour(ctx context.Context, env Env, services *devservices.Services, out io.Writer) error {
	if err := devservices.Migrate(ctx, env.Database); err != nil {
		return err
	}
	database, provider := "the database of DATABASE_URL", "a fake Stripe"
	if services.Postgres != nil {
		database = fmt.Sprintf("a private PostgreSQL, started in %.1f s", services.Took.Seconds())
	}
	if services.Stripe == nil {
		provider = "the provider at " + env.ProviderURL()
	}
	pool, err := setup.Pool(ctx, env.Database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer pool.Close()
	account, key, err := accounts.Create(ctx, pool, "demo")
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
	s, err := newSystem(ctx, Options{Env: env, Fake: services.Stripe, Pool: pool, Account: account, APIKey: key, LogFile: log})
	if err != nil {
		return err
	}
	t := &tour{system: s, out: out}
	err = s.checkProvider(ctx)
	if err == nil {
		err = t.run(ctx)
	}
	err = errors.Join(err, s.close())
	if ctx.Err() != nil {
		err = fmt.Errorf("demo: %w", ctx.Err())
	} else if err != nil {
		return fmt.Errorf("%w\nthe log of the API is %s", err, log)
	}
	return errors.Join(err, os.RemoveAll(folder))
}

func (t *tour) run(ctx context.Context) error {
	worker := receipts.NewWorker(t.Pool, t.system, "Orders <receipts@example.com>", nil, slog.New(slog.DiscardHandler))
	working, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for working.Err() == nil {
			_, _ = worker.RunOnce(working) // a missing receipt fails the check of its claim
			_ = wait(working, 100*time.Millisecond)
		}
	}()
	defer func() {
		stop()
		<-stopped
	}()
	for _, c := range claims() {
		if err := t.print(ctx, c.text, func() (string, error) { return t.prove(ctx, c) }); err != nil {
			return err
		}
	}
	return t.print(ctx, "each receipt arrives once", func() (string, error) { return t.audit(ctx) })
}

// print calls prove, and prints the line of the claim with its result.
func (t *tour) print(ctx context.Context, claim string, prove func() (string, error)) error {
	outcome, err := prove()
	var skipped errNeedsFake
	switch {
	case errors.As(err, &skipped):
		fmt.Fprintf(t.out, " – %-42s skipped: %s\n", claim, skipped.reason)
		return nil
	case err == nil:
		fmt.Fprintf(t.out, " ✓ %-42s %s\n", claim, outcome)
		return nil
	case ctx.Err() == nil:
		fmt.Fprintf(t.out, " ✗ %s\n", claim)
	}
	return fmt.Errorf("%s: %w", claim, err)
}

// claim is a line of the tour, and the scenario that proves it.
type claim struct{ text, card, fault, customer string }

func claims() []claim {
	const visa, declined, asks = "pm_card_visa", "pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_threeDSecure2Required"
	return []claim{
		{"an order is charged", visa, "none", ""},
		{"the same request again: the same bytes", visa, "repeat", ""},
		{"20 concurrent requests with one key", visa, "concurrent", ""},
		{"another body with a used key", visa, "other", ""},
		{"a declined card, and its replay", declined, "repeat", ""},
		{"the response is lost after the charge", visa, "lost", ""},
		{"SIGKILL after the charge, restart, retry", visa, "killed", ""},
		{"SIGKILL while the customer approves, retry", asks, "killed", approves},
		{"the provider stores a 500 after the charge", visa, "error", ""},
	}
}

func (t *tour) prove(ctx context.Context, c claim) (outcome string, err error) {
	chosen, err := t.choose(c.card, c.fault)
	if err != nil {
		return "", err
	}
	chosen.claim, chosen.customer = c.text, c.customer
	p := newPlay(t.system, chosen)
	t.plays = append(t.plays, p)
	if err := p.run(ctx); err != nil {
		return "", err
	}
	if p.expected() == 0 {
		return p.summary() + ": not charged", nil
	}
	return p.summary() + ": charged " + dollars(quantity*unitAmount) + " once", nil
}

// audit checks at the end that each paid order has one charge and one receipt, and that no other order has
// any.
func (t *tour) audit(ctx context.Context) (outcome string, err error) {
	paid := 0
	for _, p := range t.plays {
		s, err := p.readState(ctx)
		if err != nil {
			return "", err
		}
		if charges, _ := s.charges(); charges != p.expected() || s.mails != p.expected() || s.Jobs != 0 {
			return "", fmt.Errorf("order %s: %d charges, %d receipts and %d staged, expected %d charges and receipts",
				s.OrderID, charges, s.mails, s.Jobs, p.expected())
		}
		paid += p.expected()
	}
	return fmt.Sprintf("%d mails for %d paid orders", paid, paid), nil
}
