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

// acceptedRetryAfter is the Retry-After of a 202:
// most orders take less.
const acceptedRetryAfter = time.Second

// writeAccepted responds with 202 to a request that is certain to be finished.
func (a idempotentAPI) writeAccepted(w http.ResponseWriter, r *http.Request, key idempotency.Key, applied preferences) error {
	logAttrs(r.Context()).setOutcome("accepted")
	status, err := a.service.KeyStatus(r.Context(), accountID(r.Context()), key)
	if err != nil {
		return err // the same request again finds the key
	}
	applied.write(w.Header())
	w.Header().Set("Location", "/v1/idempotency-keys/"+url.PathEscape(string(key)))
	w.Header().Set("Retry-After", strconv.Itoa(int(acceptedRetryAfter.Seconds())))
	return writeJSON(w, http.StatusAccepted, a.view(status))
}

// getKey is GET /v1/idempotency-keys/{key}.
func (a idempotentAPI) getKey(w http.ResponseWriter, r *http.Request) error {
	key, err := pathKey(r)
	if err != nil {
		return errNotFound
	}
	account := accountID(r.Context())
	logAttrs(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))
	status, err := a.keyStatus(r.Context(), account, key)
	if prefer := readPreferences(r.Header); err == nil && prefer.wait > 0 && status.FinishedAt == nil && status.NeedsReviewAt == nil {
		waiting, cancel := context.WithTimeout(r.Context(), prefer.wait)
		defer cancel()
		if a.service.AwaitKeyStatus(waiting, account, key) {
			preferences{wait: prefer.wait}.write(w.Header())
		}
		status, err = a.keyStatus(r.Context(), account, key)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a.view(status))
}

// keyStatus reads the status of a key.
func (a idempotentAPI) keyStatus(ctx context.Context, account uuid.UUID, key idempotency.Key) (status orders.KeyStatus, err error) {
	err = a.limiter.Do(ctx, account, func(ctx context.Context) error {
		status, err = a.service.KeyStatus(ctx, account, key)
		return err
	})
	if errors.Is(err, idempotency.ErrNotFound) {
		err = errNotFound
	}
	return status, err
}

// pathKey reads the key in the path, which is raw and not quoted. chi matches the
// path as it was sent only if that differs from how Go would encode it, otherwise
// the decoded path: so a % in what it returns may be part of the key.
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

// keyView is a key as the API shows it.
type keyView struct {
	Key           idempotency.Key           `json:"key"`
	State         string                    `json:"state"`
	Operation     string                    `json:"operation"`
	RecoveryPoint idempotency.RecoveryPoint `json:"recovery_point"`
	Attempt       int                       `json:"attempt"`
	CreatedAt     orders.Timestamp          `json:"created_at"`
	LastRunAt     orders.Timestamp          `json:"last_run_at"`
	ExpiresAt     *orders.Timestamp         `json:"expires_at"`
	Response      *responseStatus           `json:"response"`
	Order         *orderLink                `json:"order"`
}

type responseStatus struct {
	Status int `json:"status"`
}

type orderLink struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

func (a idempotentAPI) view(key orders.KeyStatus) keyView {
	view := keyView{
		Key:           key.Key,
		State:         "in_progress", // or released, until the next run
		Operation:     key.Operation,
		RecoveryPoint: key.Point,
		Attempt:       key.Attempt,
		CreatedAt:     orders.Timestamp{Time: key.CreatedAt},
		LastRunAt:     orders.Timestamp{Time: key.LastRunAt},
	}
	switch {
	case key.FinishedAt != nil:
		expires := orders.Timestamp{Time: key.FinishedAt.Add(a.retention)}
		view.State, view.ExpiresAt, view.Response = "finished", &expires, &responseStatus{key.ResponseStatus}
	case key.NeedsReviewAt != nil:
		view.State = "needs_review"
	}
	if key.OrderID != uuid.Nil {
		view.Order = &orderLink{key.OrderID, "/v1/orders/" + key.OrderID.String()}
	}
	return view
}
