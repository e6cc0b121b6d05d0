package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

// payout is an operation: it pays somebody through a bank.
type payout struct {
	bank *bank
	run  *idempotency.Run

	receipt string // what the bank answered
}

func (p *payout) Name() string { return "payout" }

func (p *payout) Steps(run *idempotency.Run) idempotency.Steps {
	p.run = run
	return idempotency.Steps{
		idempotency.Started: {Record: p.note},
		"noted":             {Call: p.send, Record: p.sent},
	}
}

// note runs in the transaction that claims the key.
func (p *payout) note(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	tx.Queue("INSERT INTO payouts (id) VALUES ($1)", p.id())
	return idempotency.Advance("noted"), nil
}

// send calls the bank, with no transaction open. After a crash it may be called
// again, so the bank is given an id that is always the same for this request.
func (p *payout) send(ctx context.Context) error {
	var err error
	p.receipt, err = p.bank.transfer(ctx, p.id())
	return err
}

// sent records the bank's answer, and stores ours.
func (p *payout) sent(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	tx.Queue("UPDATE payouts SET receipt = $2 WHERE id = $1", p.id(), p.receipt)
	return idempotency.Finish(idempotency.Response{
		Status:  201,
		Headers: map[string]string{"Content-Type": "application/json"},
		Body:    fmt.Appendf(nil, `{"receipt":%q}`, p.receipt),
	}), nil
}

func (p *payout) id() uuid.UUID {
	return idempotency.DeriveID("payout", p.run.AccountID, p.run.Key)
}

// bank is somebody else's service. It knows a transfer by its id, and its first
// answer gets lost.
type bank struct {
	calls     int
	transfers map[uuid.UUID]string
}

func (b *bank) transfer(_ context.Context, id uuid.UUID) (string, error) {
	b.calls++
	if _, known := b.transfers[id]; !known {
		b.transfers[id] = fmt.Sprintf("receipt %d", len(b.transfers)+1)
	}
	if b.calls == 1 {
		return "", errors.New("the bank's answer got lost")
	}
	return b.transfers[id], nil
}

// A client sends a payout until it has an answer, then once more, and then uses
// the key for something else.
func Example() {
	ctx := context.Background()
	url, drop := database(ctx)
	defer drop()

	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		panic(err)
	}
	postgres.Configure(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		panic(err)
	}
	defer pool.Close()

	engine, err := idempotency.New(pool, idempotency.Config{
		LockTimeout: 90 * time.Second,
		Clock:       time.Now,
		Logger:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}

	// What an HTTP handler would take from the request.
	key, err := idempotency.ParseKey("8e03978e-40d5-43e8-bc93-6894a57f9324")
	if err != nil {
		panic(err)
	}
	params, err := idempotency.Canonicalize([]byte(`{ "to": "Ann", "amount": 1200 }`))
	if err != nil {
		panic(err)
	}
	request := idempotency.Request{
		AccountID: account(ctx, pool),
		Key:       key,
		Method:    "POST",
		Path:      "/v1/payouts",
		Params:    params,
	}

	bank := &bank{transfers: map[uuid.UUID]string{}}
	for range 3 {
		result, err := engine.Do(ctx, request, &payout{bank: bank})
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println(result.Response.Status, string(result.Response.Body), "replayed:", result.Replayed)
	}

	request.Params = []byte(`{"amount":9900,"to":"Ann"}`)
	_, err = engine.Do(ctx, request, &payout{bank: bank})
	fmt.Println("error:", err)
	fmt.Println("calls:", bank.calls, "transfers:", len(bank.transfers))

	// Output:
	// error: the bank's answer got lost
	// 201 {"receipt":"receipt 1"} replayed: false
	// 201 {"receipt":"receipt 1"} replayed: true
	// error: the idempotency key was used with another request
	// calls: 2 transfers: 1
}

// database makes a database with the package's tables, and one for payouts.
func database(ctx context.Context) (url string, drop func()) {
	t := &exampleTest{}
	pool := dbtest.New(t)
	if _, err := pool.Exec(ctx, "CREATE TABLE payouts (id uuid PRIMARY KEY, receipt text)"); err != nil {
		panic(err)
	}
	return dbtest.URL(pool), t.cleanUp
}

func account(ctx context.Context, pool *pgxpool.Pool) uuid.UUID {
	id := uuid.New()
	if _, err := pool.Exec(ctx, "INSERT INTO accounts (id, name) VALUES ($1, 'Example')", id); err != nil {
		panic(err)
	}
	return id
}

// exampleTest is as much of a test as an example needs to have a database.
type exampleTest struct {
	testing.TB
	cleanUps []func()
}

func (*exampleTest) Helper()                        {}
func (*exampleTest) Context() context.Context       { return context.Background() }
func (*exampleTest) Failed() bool                   { return false }
func (*exampleTest) Errorf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (*exampleTest) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (t *exampleTest) Cleanup(f func())             { t.cleanUps = append(t.cleanUps, f) }

func (t *exampleTest) cleanUp() {
	for _, f := range slices.Backward(t.cleanUps) {
		f()
	}
}
