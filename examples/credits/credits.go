// Package credits is the example of docs/add-an-operation.md: it grants store
// credit, which somebody else's wallet service keeps, once per idempotency key.
// It knows the engine and nothing of orders, payments or HTTP handlers.
package credits

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// ErrInvalid says that the request cannot be granted as it is.
var ErrInvalid = errors.New("a credit has a wallet and a positive amount")

// Service grants store credit.
type Service struct {
	Engine  *idempotency.Engine
	Wallets *Wallets
}

// Grant answers one request. Sent again, it gets the same answer. The request's
// parameters are canonical; its Validate is set here.
func (s *Service) Grant(ctx context.Context, req idempotency.Request) (idempotency.Result, error) {
	req.Validate = func() error { _, err := decode(req.Params); return err }
	return s.Engine.Do(ctx, req, grant{s.Wallets})
}

// Operation finds what a stored key was for. The completer asks.
func (s *Service) Operation(name string) (idempotency.Operation, bool) {
	return grant{s.Wallets}, name == grant{}.Name()
}

// Credit is what is asked for.
type Credit struct {
	Wallet string `json:"wallet"`
	Amount int64  `json:"amount"` // in the currency's smallest unit
}

func decode(params []byte) (Credit, error) {
	var asked Credit
	if json.Unmarshal(params, &asked) != nil || asked.Wallet == "" || asked.Amount <= 0 {
		return Credit{}, ErrInvalid
	}
	return asked, nil
}

// pointInserted is the recovery point between the engine's started and finished.
const pointInserted idempotency.RecoveryPoint = "credit_inserted"

// grant is the operation.
type grant struct{ wallets *Wallets }

// Name is stored with the key.
func (grant) Name() string { return "grant_credit" }

// Steps returns the two steps:
//
//	started          tx 1: claim the key, insert the credit
//	credit_inserted  call: tell the wallet service; tx 2: record it, store the answer
//	finished
func (op grant) Steps(run *idempotency.Run) idempotency.Steps {
	g := &granting{wallets: op.wallets, run: run}
	return idempotency.Steps{
		idempotency.Started: {Record: g.insert},
		pointInserted:       {Call: g.call, Record: g.record},
	}
}

// granting is one run of it.
type granting struct {
	wallets *Wallets
	run     *idempotency.Run
	granted bool // what the call found out
}

// id is the same in every run, so the wallet service knows the credit again (R5).
func (g *granting) id() uuid.UUID {
	return idempotency.DeriveID("credit", g.run.AccountID, g.run.Key)
}

// insert is transaction 1. It commits together with the claim of the key (R1).
func (g *granting) insert(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	asked, err := decode(g.run.Params)
	tx.Queue(`
		INSERT INTO credits (account_id, id, wallet, amount, status, created_at)
		VALUES ($1, $2, $3, $4, 'pending', $5)`,
		g.run.AccountID, g.id(), asked.Wallet, asked.Amount, g.run.CreatedAt)
	return idempotency.Advance(pointInserted), err
}

// call is the foreign call, with no transaction open (R6). It may run again after
// a crash, on the stored parameters (R4) and under the same id.
func (g *granting) call(ctx context.Context) error {
	asked, err := decode(g.run.Params)
	if err != nil {
		return err
	}
	g.granted, err = g.wallets.Put(ctx, g.id(), asked)
	return err
}

// record is transaction 2. It stores the answer that every retry gets (R14).
func (g *granting) record(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	code, status := 201, "granted"
	if !g.granted {
		code, status = 422, "refused"
	}
	body, err := json.Marshal(map[string]any{"id": g.id(), "status": status})
	tx.Queue(`
		UPDATE credits
		   SET status = $3
		 WHERE account_id = $1
		   AND id = $2`,
		g.run.AccountID, g.id(), status)
	return idempotency.Finish(idempotency.Response{
		Status:  code,
		Headers: map[string]string{"Content-Type": "application/json"},
		Body:    body,
	}), err
}
