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

// Values of Retry-After of an unfinished key, by its state.
const (
	acceptedRetryAfter    = time.Second           // most orders take less
	waitingRetryAfter     = unavailableRetryAfter // as in the 503 of the run that left it
	needsReviewRetryAfter = time.Minute
)

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
	if prefer := readPreferences(r.Header); err == nil && prefer.wait > 0 && !status.Settled() {
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
	if wait, unfinished := retryAfterOf(status); unfinished {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	return writeJSON(w, http.StatusOK, a.view(status))
}

// retryAfterOf returns how long a client should wait before it sends the request again
// or reads the status again, and false if the key is finished or expired.
func retryAfterOf(key orders.KeyStatus) (wait time.Duration, unfinished bool) {
	switch key.State() {
	case idempotency.StateInProgress:
		return acceptedRetryAfter, true
	case idempotency.StateWaiting:
		return waitingRetryAfter, true
	case idempotency.StateNeedsReview:
		return needsReviewRetryAfter, true
	default:
		return 0, false
	}
}

// keyStatus reads the status of a key.
func (a idempotentAPI) keyStatus(ctx context.Context, account uuid.UUID, key idempotency.Key) (status orders.KeyStatus, err error) {
	err = a.limiter.Do(ctx, account, func(ctx context.Context) (err error) {
		status, err = a.service.KeyStatus(ctx, account, key)
		return err
	})
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		err = errNotFound
	case err != nil:
		err = &keyedError{err} // the outcome is about the key in the path
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
	Key           idempotency.Key            `json:"key"`
	State         string                     `json:"state"`
	Operation     string                     `json:"operation"`
	RecoveryPoint *idempotency.RecoveryPoint `json:"recovery_point"`
	Attempt       *int                       `json:"attempt"`
	CreatedAt     orders.Timestamp           `json:"created_at"`
	LastRunAt     *orders.Timestamp          `json:"last_run_at"`
	ExpiresAt     *orders.Timestamp          `json:"expires_at"`
	Response      *responseView              `json:"response"`
	Order         *resource                  `json:"order"`
	Refund        *resource                  `json:"refund"`
}

type responseView struct {
	Status   int     `json:"status"`
	Type     *string `json:"type"`
	Location *string `json:"location"`
}

func (a idempotentAPI) view(key orders.KeyStatus) keyView {
	view := keyView{
		Key:       key.Key,
		State:     key.State(),
		Operation: key.Operation,
		CreatedAt: orders.Timestamp{Time: key.CreatedAt},
	}
	if !key.Expired {
		lastRun := orders.Timestamp{Time: key.LastRunAt}
		view.RecoveryPoint, view.Attempt, view.LastRunAt = &key.Point, &key.Attempt, &lastRun
	}
	if stored := key.Response; stored != nil {
		expires := orders.Timestamp{Time: key.FinishedAt.Add(a.retention)}
		view.ExpiresAt = &expires
		view.Response = &responseView{Status: stored.Status, Type: optional(stored.Type), Location: optional(stored.Location)}
	}
	if key.OrderID != uuid.Nil {
		view.Order = &resource{key.OrderID, "/v1/orders/" + key.OrderID.String()}
	}
	if key.RefundID != uuid.Nil {
		view.Refund = &resource{key.RefundID, orders.RefundPath(key.OrderID, key.RefundID)}
	}
	return view
}

// optional returns nil for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
