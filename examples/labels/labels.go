// Package labels is the example of docs/add-an-operation.md with an irreversible call. It buys the label of a parcel
// from a carrier, whose API has no idempotency keys: each request that arrives buys a label.
//
// So a run first looks for the label by our own id, commits that it is about to send, and only then sends. The request
// is sent once. If its answer is lost, later runs only look it up, because the carrier does not document how late a
// request may still be executed, so another one could buy a second label. A label that is never found is left to an
// operator, who can ask the carrier. This is rare, because an outage already fails the lookup.
package labels

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
)

// Label is a label as the API returns it. The address is only in the stored request, which an erasure empties.
type Label struct {
	ID             uuid.UUID `json:"id"`
	OrderID        uuid.UUID `json:"order_id"`
	Status         string    `json:"status"`
	TrackingNumber *string   `json:"tracking_number"` // nil unless the label is bought
}

type row struct {
	Label
	SentAt          *time.Time // a request may be in flight since then
	CancelRequested bool       // see buyLabel.Mark
}

// Service buys labels.
type Service struct {
	Pool    *pgxpool.Pool
	Carrier *Carrier
}

const (
	operation = "buy_label"
	path      = orders.Path + "/{id}/labels"
)

// Operation returns the operation, for the engine.
func (s *Service) Operation() idempotency.Operation { return buyLabel{s} }

// Routes adds the routes of the operation to the API.
func (s *Service) Routes(h *api.Handlers, r chi.Router) {
	r.Method(http.MethodPost, path, h.Post(operation))
	r.Method(http.MethodGet, path+"/{label_id}", h.Get(func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID) (any, error) {
		label, err := s.find(ctx, accountID, ids[0], ids[1])
		return label.Label, err
	}))
}

// find compares the order's id too, because the path may name another order of the account.
func (s *Service) find(ctx context.Context, accountID, orderID, id uuid.UUID) (row, error) {
	return httpjson.QueryRow(ctx, s.Pool, pgx.RowToStructByName[row], `
SELECT id, order_id, status, tracking_number, sent_at, cancel_requested_by IS NOT NULL AS cancel_requested
  FROM labels
 WHERE account_id = $1 AND order_id = $2 AND id = $3`, accountID, orderID, id)
}

type buyLabel struct{ service *Service }

func (buyLabel) Name() string { return operation }

// labelID is our reference at the carrier. It is the same in every run, also after rows were lost (R5, derived ids).
func labelID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("label", accountID, key)
}

// Links implements [httpjson.Linker], for the status of a key.
func (buyLabel) Links(key idempotency.StoredKey) httpjson.Links {
	order := httpjson.NewLink(orders.Path, httpjson.ParentID(path, key.Path))
	return httpjson.Links{"order": order}.Created("resource", key, labelID)
}

// Mark implements [idempotency.Marker]. An operator ends a label after the carrier has said that it will never be bought.
// No later run sends it, and if a lookup finds it all the same, it is kept (R29, durable cancel).
func (buyLabel) Mark(batch *pgx.Batch, key idempotency.StoredKey, operator string) {
	batch.Queue("UPDATE labels SET cancel_requested_by = $3 WHERE account_id = $1 AND id = $2",
		key.AccountID, labelID(key.AccountID, key.Key), operator)
}

const (
	pointInserted idempotency.RecoveryPoint = "label_inserted"
	pointSent     idempotency.RecoveryPoint = "label_sent" // or about to be

	// An operator cannot end a label that was sent more recently, because it may only not be listed yet.
	arrivalGrace = time.Hour
)

// Steps returns the steps:
//
//	started         tx 1: claim the key, check the order, insert the label
//	label_inserted  call: look the label up; tx 2: record that it is about to be sent
//	label_sent      call: send it, in the run that has recorded so, or else look it up; tx 3: record it, store the response
//	finished
func (op buyLabel) Steps(run *idempotency.Run) idempotency.Steps {
	r := &labelRun{buyLabel: op, Run: run}
	return idempotency.Steps{
		Start: r.insertLabel,
		// The only unique constraint is of the id, which derives from the key.
		Violated: func(context.Context, string) error { return run.Expired() },
		At:       map[idempotency.RecoveryPoint]idempotency.StepFunc{pointInserted: r.call, pointSent: r.call},
	}
}

type labelRun struct {
	buyLabel
	*idempotency.Run
	announced bool // the last commit of this run has recorded that it is about to send
}

// decodeParcel decodes the request.
func decodeParcel(params []byte) (Parcel, error) {
	in := httpjson.NewDecoder(params)
	parcel := Parcel{
		Address: in.Text("address", httpjson.Required, 1, 500),
		Grams:   in.Integer("grams", httpjson.Required, 1, 30_000),
	}
	return parcel, in.Err()
}

func (r *labelRun) insertLabel(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
	if _, err := decodeParcel(r.Params); err != nil {
		return idempotency.Transition{}, err // the transaction is rolled back, so the key stays unused
	}
	orderID := httpjson.ParentID(path, r.Path)
	order, err := orders.LockTx(ctx, tx, r.AccountID, orderID)
	if err != nil {
		return idempotency.Transition{}, err // 404, also for the order of another account
	}
	if !order.Status.Paid() || order.Status == orders.StatusRefunded {
		return idempotency.Transition{}, &httpjson.Rejection{
			Slug: "order-not-shippable", Detail: "Its payment is in progress, has failed or was refunded.", OrderID: &orderID,
		}
	}
	tx.Queue("INSERT INTO labels (account_id, id, order_id, status) VALUES ($1, $2, $3, 'pending')",
		r.AccountID, labelID(r.AccountID, r.Key), orderID)
	audit.WriteTx(ctx, tx, r.AccountID, labelID(r.AccountID, r.Key), "label.created", map[string]any{"order_id": orderID})
	return idempotency.Advance(pointInserted), nil
}

// call makes the external call while no transaction is open (R6, nothing held during a call). It looks the label up,
// unless this run has just done so (R12, read first).
func (r *labelRun) call(ctx context.Context) (idempotency.RecordFunc, error) {
	parcel, err := decodeParcel(r.Params)
	if err != nil {
		return nil, err
	}
	label, err := r.service.find(ctx, r.AccountID, httpjson.ParentID(path, r.Path), labelID(r.AccountID, r.Key))
	if errors.Is(err, httpjson.ErrNotFound) { // lost in a failover, and 404 would end the client's retries
		err = fmt.Errorf("the label of key %s is missing", r.KeyID)
	}
	if err != nil {
		return nil, err
	}
	var answer Answer
	if r.announced && !label.CancelRequested {
		answer, err = r.service.Carrier.Buy(ctx, label.ID, parcel)
	} else {
		answer, err = r.service.Carrier.Find(ctx, label.ID)
	}
	if err != nil {
		return nil, unknown(err)
	}
	return func(_ context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		return r.record(tx, label, answer)
	}, nil
}

// record stores a failure only if the request was refused, was never sent, or is ended by an operator (R31, one call,
// one answer).
func (r *labelRun) record(tx *idempotency.Tx, label row, answer Answer) (idempotency.Transition, error) {
	switch {
	case answer.Status == Bought:
		label.Status, label.TrackingNumber = "bought", &answer.TrackingNumber
		r.update(tx, label)
		return httpjson.FinishCreated(r.Path+"/"+label.ID.String(), label.Label)
	case answer.Status == Refused:
		return r.refuse(tx, label, "The carrier does not take this parcel.")
	case answer.Status == Busy: // a later run may send, because this request was not executed
		label.SentAt = nil
		r.update(tx, label)
		return idempotency.Pause(pointInserted, func() error { return unknown(errors.New("the carrier is busy")) }), nil
	case label.SentAt == nil && !label.CancelRequested:
		now := r.Now()
		label.SentAt, r.announced = &now, true
		r.update(tx, label)
		return idempotency.Advance(pointSent), nil
	case label.CancelRequested && (label.SentAt == nil || r.Now().Sub(*label.SentAt) > arrivalGrace):
		return r.refuse(tx, label, "The seller closed the request, and no label was bought.")
	default:
		return idempotency.Transition{}, unknown(errors.New("the carrier does not list the label that was sent"))
	}
}

func (r *labelRun) refuse(tx *idempotency.Tx, label row, detail string) (idempotency.Transition, error) {
	label.Status = "refused"
	r.update(tx, label)
	return httpjson.FinishProblem(httpjson.NewProblem("label-refused", 422, "No label was bought", detail))
}

func (r *labelRun) update(tx *idempotency.Tx, label row) {
	tx.Queue("UPDATE labels SET status = $3, tracking_number = $4, sent_at = $5 WHERE account_id = $1 AND id = $2",
		r.AccountID, label.ID, label.Status, label.TrackingNumber, label.SentAt)
}

// unknown returns the error of a run without a final outcome. No response is stored, and the client gets 503 (R11,
// final only).
func unknown(cause error) error {
	return &httpjson.ProviderError{Kind: httpjson.ErrOutcomeUnknown, RetryAfter: 10 * time.Second, Cause: cause}
}
