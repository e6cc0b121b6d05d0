// Package credits is the first example of docs/add-an-operation.md. It grants store credit, once per
// idempotency key. An external wallet service keeps the credit.
package credits

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
)

// Credit is a credit as the API returns it.
type Credit struct {
	ID     uuid.UUID `json:"id"`
	Wallet string    `json:"wallet"`
	Amount int64     `json:"amount"` // in the currency's smallest unit
	Status string    `json:"status"`

	cancelRequested bool // see Mark
}

// Service grants credits.
type Service struct {
	Pool    *pgxpool.Pool
	Wallets *Wallets
}

// Operation returns the operation, for the engine.
func (s *Service) Operation() idempotency.Operation { return grantCredit{s} }

// Routes adds the routes of the operation to the API.
func (s *Service) Routes(h *api.Handlers, r chi.Router) {
	r.Method(http.MethodPost, path, h.Post(operation))
	r.Method(http.MethodGet, path+"/{id}", h.Get(func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID) (any, error) {
		return s.find(ctx, accountID, ids[0])
	}))
}

const (
	operation = "grant_credit"
	path      = "/v1/credits"
)

func (s *Service) find(ctx context.Context, accountID, id uuid.UUID) (Credit, error) {
	credit := Credit{ID: id}
	err := s.Pool.QueryRow(ctx, "SELECT wallet, amount, status, cancel_requested_by IS NOT NULL FROM credits WHERE account_id = $1 AND id = $2",
		accountID, id).Scan(&credit.Wallet, &credit.Amount, &credit.Status, &credit.cancelRequested)
	if errors.Is(err, pgx.ErrNoRows) {
		err = httpjson.ErrNotFound
	}
	return credit, err
}

// grantCredit puts the credit at the wallet service, unless an operator has ended it before.
type grantCredit struct{ service *Service }

func (grantCredit) Name() string { return operation }

// Links implements [httpjson.Linker], for the status of a key.
func (grantCredit) Links(key idempotency.StoredKey) httpjson.Links {
	return httpjson.Links{}.Created("resource", key, creditID)
}

// Mark implements [idempotency.Marker], so that every later run cancels the credit (R29, durable cancel).
func (grantCredit) Mark(batch *pgx.Batch, key idempotency.StoredKey, operator string) {
	batch.Queue("UPDATE credits SET cancel_requested_by = $3 WHERE account_id = $1 AND id = $2",
		key.AccountID, creditID(key.AccountID, key.Key), operator)
}

const (
	pointInserted idempotency.RecoveryPoint = "credit_inserted"
	pointRefused  idempotency.RecoveryPoint = "credit_refused"
)

// Steps returns the steps:
//
//	started          tx 1: claim the key, insert the credit
//	credit_inserted  call: put the credit; tx 2: record it, store the response
//	credit_refused   call: cancel it, after a refusal; tx 3: record it, store the response
//	finished
func (op grantCredit) Steps(run *idempotency.Run) idempotency.Steps {
	r := &grantRun{op, run}
	return idempotency.Steps{
		Start: r.insertCredit,
		// The only unique constraint is of the id, which derives from the key.
		Violated: func(context.Context, string) error { return run.Expired() },
		At: map[idempotency.RecoveryPoint]idempotency.StepFunc{
			pointInserted: r.step(false),
			pointRefused:  r.step(true),
		},
	}
}

type grantRun struct {
	grantCredit
	*idempotency.Run
}

// creditID returns the same id in every run (R5, derived ids).
func creditID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("credit", accountID, key)
}

// credit decodes the request, with the limits of the table.
func (r *grantRun) credit() (Credit, error) {
	in := httpjson.NewDecoder(r.Params)
	credit := Credit{
		ID:     creditID(r.AccountID, r.Key),
		Wallet: in.Text("wallet", httpjson.Required, 1, 64),
		Amount: in.Integer("amount", httpjson.Required, 1, 99_999_999),
		Status: "pending",
	}
	return credit, in.Err()
}

func (r *grantRun) insertCredit(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	credit, err := r.credit()
	if err != nil {
		return idempotency.Transition{}, err // the transaction is rolled back, so the key stays unused
	}
	tx.Queue("INSERT INTO credits (account_id, id, wallet, amount, status) VALUES ($1, $2, $3, $4, $5)",
		r.AccountID, credit.ID, credit.Wallet, credit.Amount, credit.Status)
	return idempotency.Advance(pointInserted), nil
}

// step returns a step that makes the external call while no transaction is open (R6, nothing held during
// a call). The step may run again. After a refusal, or if an operator has ended the credit, the call is a cancel.
func (r *grantRun) step(refused bool) idempotency.StepFunc {
	return func(ctx context.Context) (idempotency.RecordFunc, error) {
		credit, err := r.service.find(ctx, r.AccountID, creditID(r.AccountID, r.Key))
		if err != nil {
			return nil, err
		}
		call, refusal := r.service.Wallets.Put, "The credit was closed by the seller before it was granted."
		if refused || credit.cancelRequested {
			call = r.service.Wallets.Cancel
		}
		if refused {
			refusal = "There is no such wallet."
		}
		outcome, err := call(ctx, credit)
		if err != nil { // no result is stored, and the client gets 503 (R11, final only)
			return nil, &httpjson.ProviderError{Kind: httpjson.ErrOutcomeUnknown, RetryAfter: 2 * time.Second, Cause: err}
		}
		return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
			return r.record(tx, credit, outcome, refusal)
		}, nil
	}
}

func (r *grantRun) record(tx *idempotency.Tx, credit Credit, outcome Outcome, refusal string) (idempotency.Transition, error) {
	switch outcome {
	case Granted:
		credit.Status = "granted"
	case Refused: // an earlier put may still succeed, so the credit is cancelled first (R31, one call, one answer)
		return idempotency.Advance(pointRefused), nil
	case Cancelled:
		credit.Status = "refused"
	}
	tx.Queue("UPDATE credits SET status = $3 WHERE account_id = $1 AND id = $2", r.AccountID, credit.ID, credit.Status)
	if outcome == Cancelled {
		return httpjson.FinishProblem(httpjson.NewProblem("credit-refused", 422, "The wallet service refused the credit", refusal))
	}
	return httpjson.FinishCreated(path+"/"+credit.ID.String(), credit)
}
