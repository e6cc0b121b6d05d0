// Package notes is the example of docs/add-an-operation.md without an external call. It stores the gift note of an
// order, which has one at most, whatever the idempotency key.
package notes

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
)

// Note is a note as the API returns it.
type Note struct {
	ID      uuid.UUID `json:"id"`
	OrderID uuid.UUID `json:"order_id"`
	Text    string    `json:"text"`
}

// errExists means that another key has added the note of the order. It is not stored.
var errExists = &httpjson.Rejection{Slug: "note-exists", Detail: "Another key has added the note of this order."}

const (
	operation = "create_note"
	path      = "/v1/orders/{id}/notes"
)

// Operation returns the operation, for the engine.
func Operation() idempotency.Operation { return createNote{} }

// Routes returns what adds the routes of the operation to the API.
func Routes(pool *pgxpool.Pool) func(*api.Handlers, chi.Router) {
	return func(h *api.Handlers, r chi.Router) {
		r.Method(http.MethodPost, path, h.Post(operation))
		r.Method(http.MethodGet, path+"/{note_id}", h.Get(func(ctx context.Context, accountID uuid.UUID, ids []uuid.UUID) (any, error) {
			return httpjson.QueryRow(ctx, pool, pgx.RowToStructByName[Note],
				"SELECT id, order_id, text FROM notes WHERE account_id = $1 AND order_id = $2 AND id = $3", accountID, ids[0], ids[1])
		}))
	}
}

func noteID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("note", accountID, key)
}

type createNote struct{}

func (createNote) Name() string { return operation }

// Links implements [httpjson.Linker], for the status of a key.
func (createNote) Links(key idempotency.StoredKey) httpjson.Links {
	order := httpjson.NewLink("/v1/orders", httpjson.ParentID(path, key.Path))
	return httpjson.Links{"order": order}.Created("resource", key, noteID)
}

// Steps returns only the first transaction. It already finishes the key, because there is no external call.
func (createNote) Steps(run *idempotency.Run) idempotency.Steps {
	// violated decides, instead of a lookup before the insert, which would race.
	violated := func(_ context.Context, constraint string) error {
		if strings.Contains(constraint, "notes_order_unique") {
			return errExists
		}
		return run.Expired() // the id derives from the key
	}
	return idempotency.Steps{Violated: violated, Start: func(ctx context.Context, tx *idempotency.Tx) (idempotency.Transition, error) {
		in := httpjson.NewDecoder(run.Params)
		note := Note{
			ID:      noteID(run.AccountID, run.Key),
			OrderID: httpjson.ParentID(path, run.Path),
			Text:    in.Text("text", httpjson.Required, 1, 500),
		}
		if err := in.Err(); err != nil {
			return idempotency.Transition{}, err // the transaction is rolled back, so the key stays unused
		}
		if _, err := orders.LockTx(ctx, tx, run.AccountID, note.OrderID); err != nil {
			return idempotency.Transition{}, err // 404, also for the order of another account
		}
		tx.Queue("INSERT INTO notes (account_id, id, order_id, text) VALUES ($1, $2, $3, $4)", run.AccountID, note.ID, note.OrderID, note.Text)
		return httpjson.FinishCreated(run.Path+"/"+note.ID.String(), note)
	}}
}
