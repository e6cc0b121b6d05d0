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

// payout is an operation of two steps: insert a payout, then transfer the money.
type payout struct{ bank *bank }

func (payout) Name() string { return "payout" }

func (op payout) Steps(run *idempotency.Run) idempotency.Steps {
	id := idempotency.DeriveID("payout", run.AccountID, run.Key) // the bank recognises a repeated transfer by it

	// Transaction 1 claims the key and inserts the payout.
	insert := func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		tx.Queue("INSERT INTO payouts (id) VALUES ($1)", id)
		return idempotency.Advance("inserted"), nil
	}

	// No transaction is open during the call. Transaction 2 records its result.
	transfer := func(ctx context.Context) (idempotency.RecordFunc, error) {
		receipt, err := op.bank.transfer(ctx, id)
		if err != nil {
			return nil, err // the outcome is unknown: a retry calls again
		}
		return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
			tx.Queue("UPDATE payouts SET receipt = $2 WHERE id = $1", id, receipt)
			return idempotency.Finish(idempotency.Response{Status: 201, Body: []byte(receipt)}), nil
		}, nil
	}

	return idempotency.Steps{
		Start: insert,
		At:    map[idempotency.RecoveryPoint]idempotency.StepFunc{"inserted": transfer},
	}
}

// bank is an external service. Its first response is lost.
type bank struct {
	calls     int
	transfers map[uuid.UUID]string
}

func (b *bank) transfer(_ context.Context, id uuid.UUID) (receipt string, err error) {
	b.calls++
	if b.transfers[id] == "" {
		b.transfers[id] = fmt.Sprintf("receipt %d", len(b.transfers)+1)
	}
	if b.calls == 1 {
		return "", errors.New("the bank's response was lost")
	}
	return b.transfers[id], nil
}

func Example() {
	ctx := context.Background()
	pool, account, drop := exampleDatabase(ctx)
	defer drop()

	engine, err := idempotency.New(pool, idempotency.Config{
		LeaseDuration: 90 * time.Second,
		Clock:         time.Now,
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	key, err := idempotency.ParseKey("8e03978e-40d5-43e8-bc93-6894a57f9324")
	if err != nil {
		panic(err)
	}
	bank := &bank{transfers: map[uuid.UUID]string{}}
	for _, body := range []string{
		`{"to": "Ann", "amount": 1200}`,
		`{"to": "Ann", "amount": 1200}`,
		`{"amount":1200,"to":"Ann"}`,
		`{"to": "Ann", "amount": 9900}`,
	} {
		params, err := idempotency.Canonicalize([]byte(body))
		if err != nil {
			panic(err)
		}
		request := idempotency.Request{AccountID: account, Key: key, Method: "POST", Path: "/v1/payouts", Params: params}
		result, err := engine.Do(ctx, request, payout{bank})
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Printf("%d %s, replayed: %t\n", result.Response.Status, result.Response.Body, result.Replayed)
	}
	fmt.Println("calls:", bank.calls, "transfers:", len(bank.transfers))

	// Output:
	// error: the bank's response was lost
	// 201 receipt 1, replayed: false
	// 201 receipt 1, replayed: true
	// error: the idempotency key was used with another request, which is finished
	// calls: 2 transfers: 1
}

func exampleDatabase(ctx context.Context) (pool *pgxpool.Pool, account uuid.UUID, drop func()) {
	t := &exampleTest{}
	pool = dbtest.New(t, postgres.Configure)
	account = uuid.New()
	for _, statement := range []string{
		"CREATE TABLE payouts (id uuid PRIMARY KEY, receipt text)",
		"INSERT INTO accounts (id, name) VALUES ('" + account.String() + "', 'Example')",
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			panic(err)
		}
	}
	return pool, account, t.cleanUp
}

type exampleTest struct {
	testing.TB
	cleanUps []func()
}

func (*exampleTest) Helper()                        {}
func (*exampleTest) Context() context.Context       { return context.Background() }
func (*exampleTest) Failed() bool                   { return false }
func (*exampleTest) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (t *exampleTest) Cleanup(f func())             { t.cleanUps = append(t.cleanUps, f) }

func (t *exampleTest) cleanUp() {
	for _, f := range slices.Backward(t.cleanUps) {
		f()
	}
}
