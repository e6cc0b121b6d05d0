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
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
)

// keysAPI runs requests under their keys, as the client prefers it, and holds the
// handler of /v1/idempotency-keys.
type keysAPI struct {
	service    *orders.Service
	background *Background
	reads      *idempotency.Gate
	retention  time.Duration
	observer   Observer
}

// acceptedRetryAfter is when a client that did not wait may look for the answer:
// most orders take less.
const acceptedRetryAfter = time.Second

// post is what every POST under an Idempotency-Key has in common; run is what
// it is for.
func (a keysAPI) post(w http.ResponseWriter, r *http.Request, run func(context.Context, orders.CreateRequest) (idempotency.Result, error)) error {
	key, err := readKey(r.Header)
	if err != nil {
		return err
	}
	w.Header().Set("Idempotency-Key", r.Header.Get("Idempotency-Key"))
	account := accountID(r.Context())
	logAttrs(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))

	params, err := readParams(w, r)
	if err != nil {
		return err
	}
	req := orders.CreateRequest{
		Request: idempotency.Request{
			AccountID: account,
			Key:       key,
			Method:    r.Method,
			Path:      r.URL.Path,
			Params:    params,
		},
		ClientIP: middleware.GetClientIPAddr(r.Context()),
	}
	return a.run(w, r, key, func(ctx context.Context, wait time.Duration, claimed func()) (idempotency.Result, error) {
		req.Wait, req.Claimed = wait, claimed
		return run(ctx, req)
	})
}

// run answers a request that runs under a key.
func (a keysAPI) run(w http.ResponseWriter, r *http.Request, key idempotency.Key, run keyedRun) error {
	prefer := readPreferences(r.Header)
	if prefer.respondAsync {
		claimed := make(chan struct{})
		done := a.background.start(r.Context(), func(ctx context.Context) (idempotency.Result, error) {
			result, err := run(ctx, prefer.wait, func() { close(claimed) })
			a.observer.finished(outcome(result, err))
			return result, err
		})
		if done != nil {
			return a.answerAsync(w, r, key, prefer, claimed, done)
		}
	}
	result, err := run(r.Context(), prefer.wait, nil)
	return a.answer(w, r, ended{result, err}, waited(prefer, result))
}

// answerAsync answers for a run in the background: with what it came to if that is
// known before the client's wait is over, else with 202 as soon as the key is
// durably claimed, by this run or by another one.
func (a keysAPI) answerAsync(
	w http.ResponseWriter, r *http.Request, key idempotency.Key, prefer preferences, claimed <-chan struct{}, done <-chan ended,
) error {
	patience := time.NewTimer(prefer.wait)
	defer patience.Stop()
	var run *ended
	select {
	case <-claimed:
	case end := <-done:
		run = &end
	}
	select {
	case <-claimed: // which comes first even if the run is over by now
	default:
		return a.answerEnded(w, r, key, *run, waited(prefer, run.result))
	}
	if prefer.wait == 0 {
		return a.accept(w, r, key, prefer)
	}
	if run == nil {
		select {
		case end := <-done:
			run = &end
		case <-patience.C:
			return a.accept(w, r, key, prefer)
		}
	}
	return a.answerEnded(w, r, key, *run, preferences{wait: prefer.wait})
}

// answerEnded answers with what a run in the background came to. If the key is
// another run's, that is as good as this one.
func (a keysAPI) answerEnded(w http.ResponseWriter, r *http.Request, key idempotency.Key, run ended, applied preferences) error {
	// A refusal without an attempt did not look at the key: it may not be there.
	if errors.Is(run.err, idempotency.ErrInProgress) && run.result.Attempt > 0 {
		applied.respondAsync = true
		return a.accept(w, r, key, applied)
	}
	return a.answer(w, r, run, applied)
}

// waited is how much of the client's wait for another run was honoured: all of it
// or nothing.
func waited(prefer preferences, result idempotency.Result) preferences {
	if !result.Waited {
		return preferences{}
	}
	return preferences{wait: prefer.wait}
}

// answer answers with what a run came to.
func (a keysAPI) answer(w http.ResponseWriter, r *http.Request, run ended, applied preferences) error {
	logAttrs(r.Context()).result(run.result, run.err)
	applied.write(w.Header())
	if run.err != nil {
		return run.err
	}
	writeResult(w, run.result)
	return nil
}

// accept answers 202 for a request that is sure to be finished.
func (a keysAPI) accept(w http.ResponseWriter, r *http.Request, key idempotency.Key, applied preferences) error {
	logAttrs(r.Context()).became("accepted")
	status, _, err := a.service.WatchKey(r.Context(), accountID(r.Context()), key, 0)
	if err != nil {
		return err // the same request again finds the key
	}
	applied.write(w.Header())
	w.Header().Set("Location", "/v1/idempotency-keys/"+url.PathEscape(string(key)))
	w.Header().Set("Retry-After", strconv.Itoa(int(acceptedRetryAfter.Seconds())))
	return writeJSON(w, http.StatusAccepted, a.view(status))
}

// get is GET /v1/idempotency-keys/{key}.
func (a keysAPI) get(w http.ResponseWriter, r *http.Request) error {
	key, err := pathKey(r)
	if err != nil {
		return errNotFound
	}
	account := accountID(r.Context())
	logAttrs(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))
	place, err := a.reads.Enter(account)
	if err != nil {
		return err
	}
	defer place.Leave()
	prefer := readPreferences(r.Header)
	if prefer.wait > 0 {
		place.StepAside() // most of the time it waits
	}
	status, waited, err := a.service.WatchKey(r.Context(), account, key, prefer.wait)
	if errors.Is(err, idempotency.ErrNotFound) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	if waited {
		preferences{wait: prefer.wait}.write(w.Header())
	}
	return writeJSON(w, http.StatusOK, a.view(status))
}

// pathKey reads the key in the path, where it stands as it is and not quoted. chi
// takes the path as it was sent only where that differs from how Go would write
// it, and else the decoded one: so a % in what it returns may be the key's own.
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

// keyStatus is a key as the API shows it.
type keyStatus struct {
	Key           idempotency.Key           `json:"key"`
	State         string                    `json:"state"`
	Operation     string                    `json:"operation"`
	RecoveryPoint idempotency.RecoveryPoint `json:"recovery_point"`
	Attempt       int                       `json:"attempt"`
	CreatedAt     time.Time                 `json:"created_at"`
	LastRunAt     time.Time                 `json:"last_run_at"`
	ExpiresAt     *time.Time                `json:"expires_at"`
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

func (a keysAPI) view(key orders.KeyStatus) keyStatus {
	view := keyStatus{
		Key:           key.Key,
		State:         "in_progress", // by a run, or left for the next one
		Operation:     key.Operation,
		RecoveryPoint: key.Point,
		Attempt:       key.Attempt,
		CreatedAt:     key.CreatedAt.UTC(),
		LastRunAt:     key.LastRunAt.UTC(),
	}
	switch {
	case key.FinishedAt != nil:
		expires := key.FinishedAt.Add(a.retention).UTC()
		view.State, view.ExpiresAt, view.Response = "finished", &expires, &responseStatus{key.Status.Response}
	case key.NeedsReviewAt != nil:
		view.State = "needs_review"
	}
	if key.OrderID != uuid.Nil {
		view.Order = &orderLink{key.OrderID, "/v1/orders/" + key.OrderID.String()}
	}
	return view
}
