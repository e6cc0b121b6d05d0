package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// retryAfter is the wait before the next request about an unfinished key, by its state.
var retryAfter = map[string]time.Duration{
	idempotency.StateInProgress:     time.Second,           // most orders take less
	idempotency.StateWaiting:        unavailableRetryAfter, // as in the 503 of the run that left it
	idempotency.StateActionRequired: 5 * time.Second,       // a customer needs longer
	idempotency.StateNeedsReview:    time.Minute,
}

// writeAccepted responds with 202 to a request that will be finished. required is nil if
// no action is known.
func (a accountAPI) writeAccepted(w http.ResponseWriter, r *http.Request, key idempotency.Key, applied preferences, required *orders.ActionRequiredError) error {
	status, err := a.service.KeyStatus(r.Context(), accountID(r.Context()), key)
	if err != nil {
		return err // the same request again finds the key
	}
	state := idempotency.StateActionRequired
	if required == nil {
		state = idempotency.StateInProgress
		stateOf(r.Context()).setOutcome("accepted")
	}
	applied.write(w.Header())
	w.Header().Set("Location", "/v1/idempotency-keys/"+url.PathEscape(string(key)))
	w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter[state].Seconds())))
	return writeJSON(w, http.StatusAccepted, a.view(status, required))
}

func (a accountAPI) getKey(w http.ResponseWriter, r *http.Request) error {
	key, err := pathKey(r)
	if err != nil {
		return errNotFound
	}
	account := accountID(r.Context())
	stateOf(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))
	status, required, err := a.keyStatus(r.Context(), account, key)
	if prefer := readPreferences(r.Header); err == nil && prefer.wait > 0 && !status.Settled() {
		waiting, cancel := context.WithTimeout(r.Context(), prefer.wait)
		defer cancel()
		if a.service.Engine.AwaitStatus(waiting, status.Status) {
			preferences{wait: prefer.wait}.write(w.Header())
		}
		status, required, err = a.keyStatus(r.Context(), account, key)
	}
	if err != nil {
		return err
	}
	if wait, unfinished := retryAfter[status.State()]; unfinished {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	return writeJSON(w, http.StatusOK, a.view(status, required))
}

// keyStatus reads the status of a key, and the action that it requires.
func (a accountAPI) keyStatus(ctx context.Context, account uuid.UUID, key idempotency.Key) (status orders.KeyStatus, required *orders.ActionRequiredError, err error) {
	err = a.limiter.Do(ctx, account, func(ctx context.Context) (err error) {
		if status, err = a.service.KeyStatus(ctx, account, key); err != nil || status.State() != idempotency.StateActionRequired {
			return err
		}
		required, err = a.actions.get(ctx, status.ID, func(ctx context.Context) (*orders.ActionRequiredError, error) {
			return a.service.RequiredAction(ctx, status)
		})
		if err == nil && required == nil {
			status, err = a.service.KeyStatus(ctx, account, key)
		}
		return err
	})
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		err = errNotFound
	case err != nil:
		err = &keyedError{error: err} // the outcome is about the key in the path
	}
	return status, required, err
}

// pathKey reads the raw key in the path. chi matches the escaped path only if it is not
// Go's own encoding, so a % may be part of the key.
func pathKey(r *http.Request) (idempotency.Key, error) {
	key := chi.URLParam(r, "key")
	if r.URL.RawPath != "" {
		var err error
		if key, err = url.PathUnescape(key); err != nil {
			return "", err
		}
	}
	return idempotency.ParseKey(key)
}

type keyView struct {
	Key           idempotency.Key            `json:"key"`
	State         string                     `json:"state"`
	Operation     string                     `json:"operation"`
	RecoveryPoint *idempotency.RecoveryPoint `json:"recovery_point"`
	Attempt       *int                       `json:"attempt"`
	CreatedAt     orders.Timestamp           `json:"created_at"`
	LastRunAt     *orders.Timestamp          `json:"last_run_at"`
	ExpiresAt     *orders.Timestamp          `json:"expires_at"`
	Response      *orders.StoredResponse     `json:"response"`
	Order         *orders.Resource           `json:"order"`
	Refund        *orders.Resource           `json:"refund"`
	Resource      *orders.Resource           `json:"resource,omitempty"` // of a registered operation
	Action        *actionView                `json:"action,omitempty"`
}

type actionView struct {
	Type            string `json:"type"`
	ClientSecret    string `json:"client_secret"`
	PaymentIntentID string `json:"payment_intent_id"`
}

// view returns the view of a key, which requires an action unless required is nil.
func (a accountAPI) view(key orders.KeyStatus, required *orders.ActionRequiredError) keyView {
	view := keyView{
		Key:       key.Key,
		State:     key.State(),
		Operation: key.Operation,
		CreatedAt: orders.Timestamp{Time: key.CreatedAt},
		Response:  key.Response,
		Resource:  key.Resource,
	}
	if !key.Expired {
		view.RecoveryPoint, view.Attempt, view.LastRunAt = &key.Point, &key.Attempt, &orders.Timestamp{Time: key.LastRunAt}
	}
	if key.Response != nil {
		view.ExpiresAt = &orders.Timestamp{Time: key.FinishedAt.Add(a.retention)}
	}
	if key.OrderID != uuid.Nil {
		view.Order = &orders.Resource{ID: key.OrderID, Href: "/v1/orders/" + key.OrderID.String()}
	}
	if key.RefundID != uuid.Nil {
		view.Refund = &orders.Resource{ID: key.RefundID, Href: orders.RefundPath(key.OrderID, key.RefundID)}
	}
	if required != nil && !key.Settled() { // also if another run holds the key now
		view.State = idempotency.StateActionRequired
		view.Action = &actionView{required.Action.Type, required.Action.ClientSecret(), required.PaymentIntentID}
	}
	return view
}
