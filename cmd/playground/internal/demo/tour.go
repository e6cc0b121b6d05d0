package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/orders"
	"example.com/orders-api/receipts"
)

type tour struct {
	*system
	out    io.Writer
	plays  []*play
	events map[string]string // verified events: their type and order, by id
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
	pool, err := app.Pool(ctx, env.Database, slog.New(slog.DiscardHandler))
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
	t := &tour{out: out, events: map[string]string{}}
	env.EventsSecret = devservices.EventsSecret()
	url, stop, err := devservices.Serve(ctx, t.endpoint(string(env.EventsSecret)))
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	env.EventsURL = app.Secret(url)
	s, err := newSystem(ctx, Options{Env: env, Fake: services.Stripe, Pool: pool, Account: account, APIKey: key, LogFile: log})
	if err != nil {
		return err
	}
	t.system = s
	err = s.checkProvider(ctx)
	accepted := err == nil
	if accepted {
		err = t.run(ctx)
	}
	err = errors.Join(err, s.close())
	if ctx.Err() != nil {
		err = fmt.Errorf("demo: %w", ctx.Err())
	} else if err != nil && accepted {
		return fmt.Errorf("%w\nthe log of the API is %s", err, log)
	}
	return errors.Join(err, os.RemoveAll(folder))
}

func (t *tour) run(ctx context.Context) error {
	silent := slog.New(slog.DiscardHandler)
	workers := []*jobs.Worker{
		events.NewWorker(t.Pool, t.Endpoint(), silent),
		receipts.NewWorker(t.Pool, (&orders.Service{Pool: t.Pool}).Receipt, t.system, "Orders <receipts@example.com>", silent),
	}
	working, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for working.Err() == nil {
			for _, worker := range workers {
				_, _ = worker.RunOnce(working) // a missing receipt fails the check of its claim, and a missing event the last line
			}
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
	if err := t.print(ctx, "each receipt arrives once", func() (string, error) { return t.audit(ctx) }); err != nil {
		return err
	}
	return t.print(ctx, "each event arrives, with a valid signature", func() (string, error) { return t.auditEvents(ctx) })
}

// endpoint is the shop's.
func (t *tour) endpoint(secret string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an incomplete body has another signature
		event, err := client.VerifyEvent([]string{secret}, r.Header, body, time.Now())
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.events[event.ID] = event.Type + " " + event.Data.OrderID
	})
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

// auditEvents checks that the endpoint has received one event of each paid order, and none of another order.
func (t *tour) auditEvents(ctx context.Context) (outcome string, err error) {
	want := map[string]int{}
	for _, p := range t.plays {
		if p.expected() == 1 {
			want["order.paid "+p.state.OrderID.String()] = 1
		}
	}
	for end := time.Now().Add(receiptTimeout); ; {
		t.mu.Lock()
		got := map[string]int{}
		for _, event := range t.events {
			if strings.HasPrefix(event, "order.paid ") {
				got[event]++
			}
		}
		t.mu.Unlock()
		if maps.Equal(got, want) {
			return fmt.Sprintf("%d events for %d paid orders", len(got), len(want)), nil
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("events: %v, expected %v", got, want)
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return "", err
		}
	}
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
