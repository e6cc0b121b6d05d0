package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/subprocess"
	"example.com/orders-api/internal/load"
)

// shop is a database, a stand-in for Stripe, and API processes on both.
type shop struct {
	bench     *bench
	programs  string // folder of orders and stripetest
	database  string // URL
	pool      *pgxpool.Pool
	apiKey    string
	stripe    *subprocess.Process
	environ   []string
	apis      []*subprocess.Process
	doors     []*client.Client // to each of apis
	addresses []string
	body      []byte
	sold      atomic.Int64 // answers 201 to new orders
}

// openShop opens a shop whose provider takes delay for each call.
func (b *bench) openShop(ctx context.Context, delay time.Duration, apis int) (*shop, error) {
	return b.openShopOf(ctx, b.programs, delay, apis)
}

// openShopOf opens a shop that runs the programs of a folder.
func (b *bench) openShopOf(ctx context.Context, programs string, delay time.Duration, apis int) (*shop, error) {
	b.shops++
	s := &shop{bench: b, programs: programs}
	if err := s.open(ctx, fmt.Sprintf("shop_%d", b.shops), delay, apis); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *shop) open(ctx context.Context, name string, delay time.Duration, apis int) error {
	var err error
	if s.database, err = s.bench.createDatabase(ctx, name); err != nil {
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
	if s.body, err = json.Marshal(basket()); err != nil {
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
		"STRIPE_SECRET_KEY=sk_test_stand_in",
		"STRIPE_API_BASE=http://" + address,
		"LOG_FORMAT=json",
	}
	for range apis {
		if err := s.openAPI(ctx, s.database); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command of the program and returns what it printed.
func (s *shop) command(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(s.programs, "orders"), args...) //nolint:gosec // a program of ours
	command.Env = append([]string{"DATABASE_URL=" + s.database}, s.environ...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("orders %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}

// createAccount returns the API key of a new account.
func (s *shop) createAccount(ctx context.Context, name string) (string, error) {
	out, err := s.command(ctx, "accounts", "create", "--name", name)
	lines := strings.Fields(out)
	if err != nil || len(lines) == 0 {
		return "", errors.Join(err, errors.New("no API key"))
	}
	return lines[len(lines)-1], nil
}

// basket is what every client buys: an order of usual size.
func basket() client.OrderParams {
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

func (s *shop) program(name string, args ...string) *subprocess.Process {
	return &subprocess.Process{
		Name:       name,
		Executable: filepath.Join(s.programs, name),
		Args:       args,
		Environ:    s.environ,
		Log:        filepath.Join(s.bench.folder, name+".log"),
	}
}

// openAPI adds an API process.
func (s *shop) openAPI(ctx context.Context, database string) error {
	return s.openDoor(ctx, s.program("orders", "serve"), database)
}

// openDoor starts process, which takes orders.
func (s *shop) openDoor(ctx context.Context, process *subprocess.Process, database string) error {
	address, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	process.Environ = append([]string{"DATABASE_URL=" + database, "LISTEN_ADDR=" + address, "ADMIN_ADDR="}, s.environ...)
	if err := process.Serve(ctx, "http://"+address+"/readyz"); err != nil {
		return err
	}
	s.apis = append(s.apis, process)
	door, err := client.New(client.Config{
		BaseURL:   "http://" + address,
		APIKey:    s.apiKey,
		Transport: &http.Transport{MaxIdleConnsPerHost: 2000},
	})
	if err != nil {
		return err
	}
	s.doors = append(s.doors, door)
	s.addresses = append(s.addresses, address)
	return nil
}

// buy returns a load that buys under keys of its own, by turns at each of the
// doors.
func (s *shop) buy(doors []*client.Client, name string) load.Send {
	return func(ctx context.Context, i int) (int, error) {
		answer, err := s.send(ctx, doors, i, key(name, i))
		if err == nil && answer.Status == http.StatusCreated && !answer.Replayed() {
			s.sold.Add(1)
		}
		return answer.Status, err
	}
}

// insist is like buy, for clients that come back when they are told to.
func (s *shop) insist(doors []*client.Client, name string) load.Send {
	return func(ctx context.Context, i int) (int, error) {
		answer, err := doors[i%len(doors)].Do(ctx, s.order(key(name, i)))
		if err == nil && !answer.Replayed() {
			s.sold.Add(1)
		}
		return answer.Status, err
	}
}

// ask returns a load that sends the first n requests of buy again.
func (s *shop) ask(doors []*client.Client, name string, n int) load.Send {
	return func(ctx context.Context, i int) (int, error) {
		answer, err := s.send(ctx, doors, i, key(name, i%n))
		if err == nil && !answer.Replayed() {
			err = fmt.Errorf("request %d was not replayed: %d", i, answer.Status)
		}
		return answer.Status, err
	}
}

func key(name string, i int) client.Key { return client.Key(fmt.Sprintf("bench-%s-%010d", name, i)) }

func (s *shop) send(ctx context.Context, doors []*client.Client, i int, key client.Key) (client.Response, error) {
	return doors[i%len(doors)].Send(ctx, s.order(key))
}

func (s *shop) order(key client.Key) client.Request {
	return client.Request{Key: key, Path: "/v1/orders", Body: s.body}
}

// audit compares what clients were told with the books, and these with the
// provider's.
func (s *shop) audit(ctx context.Context) error {
	var paid, open, receipts int64
	err := s.pool.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE status = 'paid'),
       count(*) FILTER (WHERE status <> 'paid'),
       (SELECT count(*) FROM staged_jobs)
  FROM orders`).Scan(&paid, &open, &receipts)
	if err != nil {
		return err
	}
	if told := s.sold.Load(); paid != told || receipts != told || open != 0 {
		return fmt.Errorf("%d answers 201, %d orders paid, %d not paid, %d receipts", told, paid, open, receipts)
	}
	_, err = s.command(ctx, "reconcile")
	return err
}

func (s *shop) close() error {
	var err error
	for _, door := range s.doors {
		door.Close()
	}
	for _, p := range append(s.apis, s.stripe) {
		err = errors.Join(err, p.Stop())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return err
}
