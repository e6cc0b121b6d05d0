package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/lab/measure"
)

// system is a database, a fake Stripe, and API processes that use both.
type system struct {
	bench     *bench
	programs  string
	database  string // URL
	pool      *pgxpool.Pool
	apiKey    string
	stripe    *subprocess.Process
	environ   []string
	apis      []*subprocess.Process
	clients   []*measure.Client // by process in apis
	retrying  *client.Client    // of the first process
	addresses []string
	body      []byte
	created   atomic.Int64 // 201 responses that are not replays
}

// startSystem starts API processes whose provider delays each response.
func (b *bench) startSystem(ctx context.Context, delay time.Duration, apis int) (*system, error) {
	return b.startSystemFrom(ctx, b.programs, delay, apis)
}

func (b *bench) startSystemFrom(ctx context.Context, programs string, delay time.Duration, apis int) (*system, error) {
	b.systems++
	s := &system{bench: b, programs: programs}
	if err := s.start(ctx, fmt.Sprintf("system_%d", b.systems), delay, apis); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *system) start(ctx context.Context, name string, delay time.Duration, apis int) error {
	var err error
	if s.database, err = s.bench.Create(ctx, name); err != nil {
		return err
	}
	if _, err := s.command(ctx, "migrate", "up"); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, s.database); err != nil {
		return err
	}
	if s.apiKey, err = s.createAccount(ctx, "bench"); err != nil {
		return err
	}
	if s.body, err = json.Marshal(orderParams()); err != nil {
		return err
	}
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	s.stripe = s.program("stripetest", "-addr", address, "-delay", delay.String())
	if err := s.stripe.Serve(ctx, "http://"+address+"/"); err != nil {
		return err
	}
	s.environ = []string{
		"STRIPE_SECRET_KEY=sk_test_fake",
		"STRIPE_API_BASE=http://" + address,
		"LOG_FORMAT=json",
	}
	for range apis {
		if err := s.startAPI(ctx, s.database); err != nil {
			return err
		}
	}
	return nil
}

func (s *system) command(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(s.programs, "orders"), args...) //nolint:gosec // our own program
	command.Env = append([]string{"DATABASE_URL=" + s.database}, s.environ...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("orders %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}

func (s *system) createAccount(ctx context.Context, name string) (string, error) {
	out, err := s.command(ctx, "accounts", "create", "--name", name)
	lines := strings.Fields(out)
	if err != nil || len(lines) == 0 {
		return "", errors.Join(err, errors.New("no API key"))
	}
	return lines[len(lines)-1], nil
}

func orderParams() client.OrderParams {
	return client.OrderParams{
		Email:         "buyer@example.com",
		Currency:      "usd",
		PaymentMethod: "pm_card_visa",
		Items: []client.Item{
			{SKU: "beans-1kg", Description: "Coffee beans, 1 kg", Quantity: 1, UnitAmount: 2500},
			{SKU: "filter-02", Description: "Paper filters, 100", Quantity: 2, UnitAmount: 450},
		},
		Metadata: map[string]string{"cart": "c-1029", "channel": "web"},
	}
}

func (s *system) program(name string, args ...string) *subprocess.Process {
	return &subprocess.Process{
		Name:       name,
		Executable: filepath.Join(s.programs, name),
		Args:       args,
		Environ:    s.environ,
		Log:        filepath.Join(s.bench.Folder, name+".log"),
	}
}

func (s *system) startAPI(ctx context.Context, database string) error {
	return s.startServer(ctx, s.program("orders", "serve"), database)
}

// startServer starts a process that serves POST /v1/orders, and adds a client for it.
func (s *system) startServer(ctx context.Context, process *subprocess.Process, database string) error {
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	process.Environ = append([]string{"DATABASE_URL=" + database, "LISTEN_ADDR=" + address, "ADMIN_ADDR="}, s.environ...)
	if err := process.Serve(ctx, "http://"+address+"/readyz"); err != nil {
		return err
	}
	s.apis = append(s.apis, process)
	s.clients = append(s.clients, measure.NewClient(address, s.apiKey))
	s.addresses = append(s.addresses, address)
	if s.retrying == nil {
		s.retrying, err = client.New(client.Config{
			BaseURL:   "http://" + address,
			APIKey:    s.apiKey,
			Transport: &http.Transport{MaxIdleConnsPerHost: 2000},
		})
	}
	return err
}

// createOrders creates one order per request, each with a new key. The clients take
// turns. name must be unique.
func (s *system) createOrders(clients []*measure.Client, name string) measure.Send {
	return func(_ context.Context, i int) (int, error) {
		response, err := clients[i%len(clients)].CreateOrder(key(name, i), s.body)
		if response.Status == http.StatusCreated && !response.Replayed {
			s.created.Add(1)
		}
		return response.Status, err
	}
}

// createWithRetries is createOrders with the retries of client.Do.
func (s *system) createWithRetries(name string) measure.Send {
	return func(ctx context.Context, i int) (int, error) {
		response, err := s.retrying.Do(ctx, s.order(key(name, i)))
		if err == nil && !response.Replayed() {
			s.created.Add(1)
		}
		return response.Status, err
	}
}

// replay repeats the first n requests of createOrders. Each response must be a replay.
func (s *system) replay(clients []*measure.Client, name string, n int) measure.Send {
	return func(_ context.Context, i int) (int, error) {
		response, err := clients[i%len(clients)].CreateOrder(key(name, i%n), s.body)
		if err == nil && !response.Replayed {
			err = fmt.Errorf("request %d was not replayed: %d", i, response.Status)
		}
		return response.Status, err
	}
}

func key(name string, i int) string { return fmt.Sprintf("bench-%s-%010d", name, i) }

func (s *system) order(key string) client.Request {
	return client.Request{Key: client.Key(key), Path: "/v1/orders", Body: s.body}
}

// audit compares the responses with the database, and the database with the provider.
func (s *system) audit(ctx context.Context) error {
	var paid, open, receipts int64
	err := s.pool.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE status = 'paid'),
       count(*) FILTER (WHERE status <> 'paid'),
       (SELECT count(*) FROM staged_jobs WHERE kind = 'receipt')
  FROM orders`).Scan(&paid, &open, &receipts)
	if err != nil {
		return err
	}
	if created := s.created.Load(); paid != created || receipts != created || open != 0 {
		return fmt.Errorf("%d responses with status 201, but %d paid orders, %d unpaid orders, %d receipts", created, paid, open, receipts)
	}
	_, err = s.command(ctx, "reconcile")
	return err
}

func (s *system) stop() error {
	var err error
	for _, c := range s.clients {
		c.Close()
	}
	if s.retrying != nil {
		s.retrying.Close()
	}
	for _, p := range append(s.apis, s.stripe) {
		err = errors.Join(err, p.Stop())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return err
}

type bench struct {
	options
	*measure.PostgreSQL
	out      io.Writer
	programs string
	systems  int
	windows  []window
}

func open(ctx context.Context, o options, out io.Writer) (*bench, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	postgres, err := measure.Start(ctx, out)
	if err != nil {
		return nil, err
	}
	return &bench{options: o, PostgreSQL: postgres, out: out, programs: filepath.Dir(executable)}, nil
}
