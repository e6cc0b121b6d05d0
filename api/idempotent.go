package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/orders"
)

// idempotentAPI serves every POST under an Idempotency-Key.
type idempotentAPI struct {
	service    *orders.Service
	background *Background
	limiter    *limiter.Limiter
	retention  time.Duration
}

type executeFunc func(context.Context, orders.Request) (idempotency.Result, error)

type runResult struct {
	idempotency.Result
	err    error
	waited bool // as long as the client preferred, or until the result
}

// serve executes a POST under a key and writes its response.
func (a idempotentAPI) serve(w http.ResponseWriter, r *http.Request, execute executeFunc) error {
	key, err := readKey(r.Header)
	if err != nil {
		return err
	}
	w.Header().Set("Idempotency-Key", r.Header.Get("Idempotency-Key"))
	account := accountID(r.Context())
	logAttrs(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))

	if err := checkQuery(r.URL.RawQuery); err != nil {
		return err // a client that expects an effect of the query must not be charged without it
	}
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	prefer := readPreferences(r.Header)
	req := orders.Request{
		Request:  idempotency.Request{AccountID: account, Key: key, Method: r.Method, Path: r.URL.Path},
		ClientIP: middleware.GetClientIPAddr(r.Context()),
	}
	execute = a.canonicalize(body, execute)
	if prefer.respondAsync {
		return a.serveAsync(w, r, req, prefer, execute)
	}
	return a.writeRunResult(w, r, key, a.run(r.Context(), req, prefer.wait, execute), prefer)
}

// canonicalize parses the body with a permit: a shed request is not parsed (R25).
func (a idempotentAPI) canonicalize(body []byte, execute executeFunc) executeFunc {
	return func(ctx context.Context, req orders.Request) (result idempotency.Result, err error) {
		if req.Params, err = idempotency.Canonicalize(body); err != nil {
			return result, err
		}
		if result, err = execute(ctx, req); err != nil {
			keyed := &keyedError{error: err}
			var expired *idempotency.KeyExpiredError
			if errors.As(err, &expired) {
				keyed.created = a.service.ResourceOf(expired.Key)
			}
			err = keyed
		}
		return result, err
	}
}

// run executes the request. For up to wait, without a permit, it waits for another run of
// the key.
func (a idempotentAPI) run(ctx context.Context, req orders.Request, wait time.Duration, execute executeFunc) (run runResult) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		run.err = a.limiter.Do(ctx, req.AccountID, func(ctx context.Context) (err error) {
			run.Result, err = execute(ctx, req)
			return err
		})
		if wait == 0 || !errors.Is(run.err, idempotency.ErrInProgress) {
			return run
		}
		run.waited = a.service.AwaitTurn(waiting, req.AccountID, run.KeyID)
		if !run.waited || waiting.Err() != nil {
			return run
		}
	}
}

// appliedWait is how much of the client's wait was honoured: all of it or nothing.
func (run runResult) appliedWait(prefer preferences) time.Duration {
	if run.waited {
		return prefer.wait
	}
	return 0
}

// writeRunResult writes the response, the required action or the error of a run.
func (a idempotentAPI) writeRunResult(w http.ResponseWriter, r *http.Request, key idempotency.Key, run runResult, prefer preferences) error {
	logAttrs(r.Context()).result(run.Result, run.err)
	applied := preferences{wait: run.appliedWait(prefer)}
	var required *orders.ActionRequiredError
	if errors.As(run.err, &required) {
		return a.writeAccepted(w, r, key, applied, required)
	}
	applied.write(w.Header())
	if run.err != nil {
		return run.err
	}
	writeResult(w, run.Result)
	return nil
}
