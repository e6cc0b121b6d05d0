// Package credits is the example of docs/add-an-operation.md: it grants store credit,
// which an external wallet service keeps, once per idempotency key.
package credits

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// Service grants and reads store credit.
type Service struct {
	Pool    *pgxpool.Pool
	Wallets *Wallets
}

const path = "/v1/credits"

// Registration adds the operation to the API.
func (s *Service) Registration() orders.Registration {
	return orders.Registration{
		Operation: grantCredit{call: s.Wallets.Put},
		Path:      path,
		ID:        creditID,
		Get:       s.get,
		Resolve:   func(idempotency.Status) idempotency.Operation { return grantCredit{call: s.Wallets.Cancel} },
	}
}

func (s *Service) get(ctx context.Context, accountID, id uuid.UUID) (any, error) {
	credit := Credit{ID: id}
	err := s.Pool.QueryRow(ctx, "SELECT wallet, amount, status FROM credits WHERE account_id = $1 AND id = $2", accountID, id).
		Scan(&credit.Wallet, &credit.Amount, &credit.Status)
	if errors.Is(err, pgx.ErrNoRows) {
		err = orders.ErrNotFound
	}
	return credit, err
}

// Credit is a credit as the API shows it.
type Credit struct {
	ID     uuid.UUID `json:"id"`
	Wallet string    `json:"wallet"`
	Amount int64     `json:"amount"` // in the currency's smallest unit
	Status string    `json:"status"`
}

// decode reads the two members of a request. The limits are those of the table.
func decode(params []byte) (Credit, error) {
	in := orders.NewDecoder(params)
	credit := Credit{Wallet: in.Text("wallet", orders.Required, 1, 64), Amount: in.Integer("amount", orders.Required, 99_999_999)}
	return credit, in.Err()
}

// pointInserted is the recovery point between the engine's started and finished.
const pointInserted idempotency.RecoveryPoint = "credit_inserted"

// grantCredit is the operation. If an operator ends a credit, its call is Wallets.Cancel.
type grantCredit struct {
	call func(context.Context, Credit) (refusal string, err error)
}

// Name is stored with the key.
func (grantCredit) Name() string { return "grant_credit" }

// Steps returns the two steps:
//
//	started          tx 1: claim the key, insert the credit
//	credit_inserted  call: put the credit, or cancel it; tx 2: record it, store the response
//	finished
func (op grantCredit) Steps(run *idempotency.Run) idempotency.Steps {
	r := &grantRun{grantCredit: op, Run: run}
	return idempotency.Steps{
		Start: r.insertCredit,
		From:  map[idempotency.RecoveryPoint]idempotency.Step{pointInserted: r.callWallets},
	}
}

// grantRun is one run of the operation.
type grantRun struct {
	grantCredit
	*idempotency.Run
}

// creditID is the same in every run, so the wallet service recognises the credit (R5).
func creditID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("credit", accountID, key)
}

// insertCredit is transaction 1. It commits together with the claim of the key (R1).
func (r *grantRun) insertCredit(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
	credit, err := decode(r.Params)
	if err != nil {
		return idempotency.Outcome{}, err // rejects the request: the key stays unused
	}
	tx.Queue("INSERT INTO credits (account_id, id, wallet, amount, status) VALUES ($1, $2, $3, $4, 'pending')",
		r.AccountID, creditID(r.AccountID, r.Key), credit.Wallet, credit.Amount)
	return idempotency.Advance(pointInserted), nil
}

// callWallets makes the external call, with no transaction open (R6). It may run again
// after a crash, with the stored parameters (R4) and the same id.
func (r *grantRun) callWallets(ctx context.Context) (idempotency.Record, error) {
	credit, err := decode(r.Params)
	if err != nil {
		return nil, err
	}
	credit.ID = creditID(r.AccountID, r.Key)
	refusal, err := r.call(ctx, credit)
	if err != nil { // nothing is stored, and the key stays (R11); the client gets 503
		return nil, &orders.ProviderError{Kind: orders.ErrOutcomeUnknown, RetryAfter: 2 * time.Second, Cause: err}
	}
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Outcome, error) {
		return r.record(tx, credit, refusal)
	}, nil
}

// record is transaction 2. It stores the response that every retry gets (R14).
func (r *grantRun) record(tx *idempotency.Tx, credit Credit, refusal string) (idempotency.Outcome, error) {
	credit.Status = "granted"
	response := idempotency.Response{Status: 201, Headers: map[string]string{
		"Content-Type": "application/json", "Location": path + "/" + credit.ID.String(),
	}}
	var body any = &credit
	if refusal != "" {
		credit.Status = "refused"
		response = idempotency.Response{Status: 422, Headers: map[string]string{"Content-Type": "application/problem+json"}}
		body = problem{
			Type: "/problems/credit-refused", Title: "The wallet service refused the credit", Status: 422,
			Detail: refusal, Retry: "new-key", Outcome: "final",
		}
	}
	tx.Queue("UPDATE credits SET status = $3 WHERE account_id = $1 AND id = $2", r.AccountID, credit.ID, credit.Status)
	var err error
	response.Body, err = json.Marshal(body)
	return idempotency.Finish(response), err
}

// problem is a problem document (RFC 9457). The members are stored in this order.
type problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Retry   string `json:"retry"`
	Outcome string `json:"outcome"`
}
