package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/operations"
)

// retryAfter has the Retry-After of an unfinished key in seconds, by its state.
var retryAfter = map[string]string{
	idempotency.StateInProgress:     "1",
	idempotency.StateWaiting:        "2",
	idempotency.StateActionRequired: "5",
}

func (h *handlers) getKey(w http.ResponseWriter, r *http.Request) error {
	key, err := pathKey(r)
	if err != nil {
		return errNoPage
	}
	account := accountID(r.Context())
	entryOf(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))
	status, required, err := h.keyStatus(r.Context(), account, key)
	if prefer := readPreferences(r.Header); err == nil && prefer.wait > 0 && !status.Settled() {
		waiting, cancel := context.WithTimeout(r.Context(), prefer.wait)
		defer cancel()
		if h.Engine.AwaitChange(waiting, status.StoredKey) {
			preferences{wait: prefer.wait}.write(w.Header())
		}
		status, required, err = h.keyStatus(r.Context(), account, key)
	}
	if err != nil {
		return err
	}
	view := h.view(status, required)
	if wait, unfinished := retryAfter[view.State]; unfinished {
		w.Header().Set("Retry-After", wait)
	}
	return writeJSON(w, http.StatusOK, view)
}

func (h *handlers) keyStatus(ctx context.Context, account uuid.UUID, key idempotency.Key) (status operations.KeyStatus, required *httpjson.ActionRequiredError, err error) {
	err = h.Limiter.Do(ctx, func(ctx context.Context) (err error) {
		status, err = h.Operations.KeyStatus(ctx, account, key)
		if err != nil || status.State() != idempotency.StateActionRequired {
			return err
		}
		err = h.actions.do(ctx, status.ID, func(ctx context.Context) error {
			return h.Operations.ContinueAfterAction(ctx, status.StoredKey)
		})
		if errors.As(err, &required) {
			return nil
		}
		if err == nil {
			status, err = h.Operations.KeyStatus(ctx, account, key)
		}
		return err
	})
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		err = httpjson.ErrNotFound
	case err != nil:
		err = &keyedError{error: err} // because the outcome is about the key in the path
	}
	return status, required, err
}

// pathKey returns the key in the path. Only with a RawPath, chi's parameter still has the escapes;
// otherwise a % is part of the key.
func pathKey(r *http.Request) (idempotency.Key, error) {
	key := chi.URLParam(r, "key")
	if r.URL.RawPath != "" {
		var err error
		if key, err = url.PathUnescape(key); err != nil {
			return "", err
		}
	}
	if encoded, ok := strings.CutPrefix(key, "~"); ok {
		decoded, _ := base64.RawURLEncoding.DecodeString(encoded)
		if key, err := idempotency.ParseKey(string(decoded)); err == nil {
			return key, nil
		}
	}
	return idempotency.ParseKey(key)
}

const keyAddress = "/v1/idempotency-keys/"

// keySegment returns a path segment without escapes, because some proxies undo them. A key that
// would need them becomes ~ and its base64url.
func keySegment(key idempotency.Key) string {
	if escaped := url.PathEscape(string(key)); escaped == string(key) && key[0] != '~' {
		return escaped
	}
	return "~" + base64.RawURLEncoding.EncodeToString([]byte(key))
}

type keyView struct {
	Key           idempotency.Key            `json:"key"`
	State         string                     `json:"state"`
	Operation     string                     `json:"operation"`
	RecoveryPoint *idempotency.RecoveryPoint `json:"recovery_point"`
	Attempt       *int                       `json:"attempt"`
	CreatedAt     httpjson.Timestamp         `json:"created_at"`
	LastRunAt     *httpjson.Timestamp        `json:"last_run_at"`
	ExpiresAt     *httpjson.Timestamp        `json:"expires_at"`
	Response      *operations.StoredResponse `json:"response"`
	Order         *operations.Resource       `json:"order"`
	Refund        *operations.Resource       `json:"refund"`
	Resource      *operations.Resource       `json:"resource,omitempty"`
	Action        json.Marshaler             `json:"action,omitempty"`
}

func (h *handlers) view(key operations.KeyStatus, required *httpjson.ActionRequiredError) keyView {
	view := keyView{
		Key:       key.Key,
		State:     key.State(),
		Operation: key.Operation,
		CreatedAt: httpjson.Timestamp{Time: key.CreatedAt},
		Response:  key.Response,
		Order:     key.Links["order"],
		Refund:    key.Links["refund"],
		Resource:  key.Links[operations.MemberResource],
	}
	if !key.Expired {
		view.RecoveryPoint, view.Attempt, view.LastRunAt = &key.Point, &key.Runs, &httpjson.Timestamp{Time: key.LastRunAt}
	}
	if key.Response != nil {
		view.ExpiresAt = &httpjson.Timestamp{Time: key.FinishedAt.Add(h.Retention)}
	}
	if required != nil && !key.Settled() { // The action is shown even if another run holds the key now.
		view.State = idempotency.StateActionRequired
		view.Action = required.Action
	}
	return view
}
