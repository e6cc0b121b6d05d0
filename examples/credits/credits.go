// Package credits is the example of docs/add-an-operation.md: it grants store
// credit, which an external wallet service keeps, once per idempotency key. It
// imports the engine and nothing of orders, payments or HTTP handlers.
package credits

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// ErrInvalid means that the request is not valid.
var ErrInvalid = errors.New("a credit has a wallet and a positive amount")

// Service grants store credit.
type Service struct {
	Engine  *idempotency.Engine
	Wallets *Wallets
}

// Grant executes one request. Sent again, it gets the same response. The request's
// parameters are canonical.
func (s *Service) Grant(ctx context.Context, req idempotency.Request) (idempotency.Result, error) {
	return s.Engine.Do(ctx, req, grantCredit{s.Wallets})
}

// Operation returns the operation of a stored key, for the completer.
func (s *Service) Operation(name string) (idempotency.Operation, bool) {
	return grantCredit{s.Wallets}, name == grantCredit{}.Name()
}

// Credit is what a request asks for.
type Credit struct {
	Wallet string `json:"wallet"`
	Amount int64  `json:"amount"` // in the currency's smallest unit
}

func decode(params []byte) (Credit, error) {
	var credit Credit
	if json.Unmarshal(params, &credit) != nil || credit.Wallet == "" || credit.Amount <= 0 {
		return Credit{}, ErrInvalid
	}
	return credit, nil
}

// pointInserted is the recovery point between the engine's started and finished.
const pointInserted idempotency.RecoveryPoint = "credit_inserted"

// grantCredit is the operation.
type grantCredit struct{ wallets *Wallets }

// Name is stored with the key.
func (grantCredit) Name() string { return "grant_credit" }

// Steps returns the two steps:
//
//	started          tx 1: claim the key, insert the credit
//	credit_inserted  call: put the credit; tx 2: record it, store the response
//	finished
func (op grantCredit) Steps(run *idempotency.Run) idempotency.Steps {
	r := &grantRun{grantCredit: op, Run: run}
	return idempotency.Steps{
		Start: r.insertCredit,
		From:  map[idempotency.RecoveryPoint]idempotency.Step{pointInserted: r.putCredit},
	}
}

// grantRun is one run of the operation.
type grantRun struct {
	grantCredit
	*idempotency.Run
}

// id is the same in every run, so the wallet service recognises the credit (R5).
func (r *grantRun) id() uuid.UUID { return idempotency.DeriveID("credit", r.AccountID, r.Key) }

// insertCredit is transaction 1. It commits together with the claim of the key (R1).
func (r *grantRun) insertCredit(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	credit, err := decode(r.Params) // an error rejects the request, and the key stays unused
	tx.Queue(`
		INSERT INTO credits (account_id, id, wallet, amount, status)
		VALUES ($1, $2, $3, $4, 'pending')`,
		r.AccountID, r.id(), credit.Wallet, credit.Amount)
	return idempotency.Advance(pointInserted), err
}

// putCredit is the external call, with no transaction open (R6). It may run again
// after a crash, with the stored parameters (R4) and the same id. Transaction 2
// records the result and stores the response that every retry gets (R14).
func (r *grantRun) putCredit(ctx context.Context) (idempotency.Record, error) {
	credit, err := decode(r.Params)
	if err != nil {
		return nil, err
	}
	granted, err := r.wallets.Put(ctx, r.id(), credit)
	if err != nil {
		return nil, err // unknown: nothing is stored, and the key stays (R11)
	}
	code, status := 201, "granted"
	if !granted {
		code, status = 422, "refused"
	}
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		tx.Queue("UPDATE credits SET status = $3 WHERE account_id = $1 AND id = $2", r.AccountID, r.id(), status)
		body, err := json.Marshal(map[string]any{"id": r.id(), "status": status})
		return idempotency.Finish(idempotency.Response{
			Status:  code,
			Headers: map[string]string{"Content-Type": "application/json"},
			Body:    body,
		}), err
	}, nil
}
