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
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/internal/httpjson"
)

// retryAfter has the Retry-After of an unfinished key in seconds, by its state.
var retryAfter = map[string]string{
	idempotency.StateInProgress:     "1",
	idempotency.StateWaiting:        "2",
	idempotency.StateActionRequired: "5",
}

func (h *Handlers) getKey(w http.ResponseWriter, r *http.Request) error {
	key, err := pathKey(r)
	if err != nil {
		return errNoPage
	}
	account := accountID(r.Context())
	entryOf(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))
	status, required, err := h.keyStatus(r.Context(), account, key)
	if prefer := readPreferences(r.Header); err == nil && prefer.wait > 0 && !status.settled() {
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

// keyStatus is the status of a key.
type keyStatus struct {
	idempotency.StoredKey
	response *storedResponse // nil if none is stored
}

// storedResponse describes a stored response.
type storedResponse struct {
	Status   int     `json:"status"`
	Type     *string `json:"type"` // of a problem
	Location *string `json:"location"`
}

func (h *Handlers) readKeyStatus(ctx context.Context, account uuid.UUID, key idempotency.Key) (keyStatus, error) {
	stored, response, err := h.Engine.Lookup(ctx, account, key)
	if err != nil || response.Status == 0 {
		return keyStatus{stored, nil}, err
	}
	described := &storedResponse{Status: response.Status}
	if location, ok := response.Headers["Location"]; ok {
		described.Location = &location
	}
	var p httpjson.Problem
	if response.Headers["Content-Type"] == httpjson.ProblemMediaType && json.Unmarshal(response.Body, &p) == nil {
		described.Type = &p.Type
	}
	return keyStatus{stored, described}, nil
}

// actionChecker is an operation whose keys may wait for an action. CheckAction returns an
// [*httpjson.ActionRequiredError] if the key still waits for one.
type actionChecker interface {
	CheckAction(ctx context.Context, key idempotency.StoredKey) error
}

// continueAfterAction continues the request of a key, or returns an [*httpjson.ActionRequiredError] if it still
// requires an action. A run that does not finish is no error, because the key's status shows it.
func (h *Handlers) continueAfterAction(ctx context.Context, key idempotency.StoredKey) error {
	checker, ok := h.Engine.Operation(key.Operation).(actionChecker)
	if !ok {
		return nil
	}
	if err := checker.CheckAction(ctx, key); err != nil {
		return err
	}
	_, err := h.Engine.Resume(ctx, key.AccountID, key.ID)
	if _, unfinished := errors.AsType[*httpjson.ProviderError](err); unfinished || errors.Is(err, idempotency.ErrInProgress) {
		return nil
	}
	return err
}

// settled reports whether no run is expected.
func (k keyStatus) settled() bool { return retryAfter[k.State()] == "" }

func (h *Handlers) keyStatus(ctx context.Context, account uuid.UUID, key idempotency.Key) (status keyStatus, required *httpjson.ActionRequiredError, err error) {
	err = h.Limiter.Do(ctx, func(ctx context.Context) (err error) {
		status, err = h.readKeyStatus(ctx, account, key)
		if err != nil || status.State() != idempotency.StateActionRequired {
			return err
		}
		err = h.actions.do(ctx, status.ID, func(ctx context.Context) error {
			return h.continueAfterAction(ctx, status.StoredKey)
		})
		if errors.As(err, &required) {
			return nil
		}
		if err == nil {
			status, err = h.readKeyStatus(ctx, account, key)
		}
		return err
	})
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		err = errUnknownKey
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
	Runs          *int                       `json:"runs"`
	CreatedAt     httpjson.Timestamp         `json:"created_at"`
	UpdatedAt     *httpjson.Timestamp        `json:"updated_at"`
	ExpiresAt     *httpjson.Timestamp        `json:"expires_at"`
	Response      *storedResponse            `json:"response"`
	Order         *httpjson.Link             `json:"order"`
	Refund        *httpjson.Link             `json:"refund"`
	Resource      *httpjson.Link             `json:"resource,omitempty"`
	Action        json.Marshaler             `json:"action,omitempty"`
}

func (h *Handlers) view(key keyStatus, required *httpjson.ActionRequiredError) keyView {
	links := httpjson.LinksOf(h.Engine, key.StoredKey)
	view := keyView{
		Key:       key.Key,
		State:     key.State(),
		Operation: key.Operation,
		CreatedAt: httpjson.Timestamp{Time: key.CreatedAt},
		Response:  key.response,
		Order:     links["order"],
		Refund:    links["refund"],
		Resource:  links["resource"],
	}
	if !key.Expired {
		view.RecoveryPoint, view.Runs, view.UpdatedAt = &key.Point, &key.Runs, &httpjson.Timestamp{Time: key.UpdatedAt}
	}
	if key.response != nil {
		view.ExpiresAt = &httpjson.Timestamp{Time: key.FinishedAt.Add(h.Retention)}
	}
	if required != nil && !key.settled() { // The action is shown even if another run holds the key now.
		view.State = idempotency.StateActionRequired
		view.Action = required.Action
	}
	return view
}

// coalescer does the same work once per second for all requests with an id (R25, bounded outsiders). An
// error, such as a required action, is also returned to the requests of the next second. A timer then
// removes it, because it may contain a client secret. A success is not kept, because later requests
// read its effect from the database.
type coalescer struct {
	works sync.Map // by id
}

func (c *coalescer) do(ctx context.Context, id uuid.UUID, work func(context.Context) error) error {
	do, found := c.works.LoadOrStore(id, sync.OnceValue(func() (err error) {
		defer func() {
			if err == nil {
				c.works.Delete(id)
			} else {
				time.AfterFunc(time.Second, func() { c.works.Delete(id) })
			}
		}()
		return work(context.WithoutCancel(ctx)) // other requests wait for it
	}))
	if found {
		defer admission.Suspend(ctx)()
	}
	return do.(func() error)()
}
