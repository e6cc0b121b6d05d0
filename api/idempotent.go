package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/operations"
)

// accountAPI serves the routes that need an API key. Every POST needs an Idempotency-Key.
type accountAPI struct {
	engine     *idempotency.Engine
	operations *operations.Service
	background *Background
	limiter    *admission.Limiter
	actions    *actions
	retention  time.Duration
}

type idempotentRequest struct {
	operations.Request
	body    []byte
	prefer  preferences
	execute executeFunc
}

type executeFunc func(context.Context, operations.Request) (idempotency.Result, error)

type runResult struct {
	idempotency.Result
	err    error
	waited time.Duration // the client's wait if it was honoured
}

func (a accountAPI) create(execute executeFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error { return a.serve(w, r, execute) }
}

// serve executes a POST under a key and writes its response.
func (a accountAPI) serve(w http.ResponseWriter, r *http.Request, execute executeFunc) error {
	key, err := readKey(r.Header)
	if err != nil {
		return err
	}
	w.Header().Set("Idempotency-Key", r.Header.Get("Idempotency-Key"))
	account := accountID(r.Context())
	entryOf(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))

	if err := checkQuery(r.URL.RawQuery); err != nil {
		return err // a client that expects an effect of the query must not be charged without it
	}
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	req := idempotentRequest{body: body, prefer: readPreferences(r.Header), execute: execute, Request: operations.Request{
		Request:  idempotency.Request{AccountID: account, Key: key, Method: r.Method, Path: r.URL.Path},
		ClientIP: middleware.GetClientIPAddr(r.Context()),
	}}
	if req.prefer.respondAsync {
		return a.serveAsync(w, r, req)
	}
	return a.writeRunResult(w, r, key, a.run(r.Context(), req))
}

// run executes the request. For up to the client's wait, without a permit, it waits for
// another run of the key.
func (a accountAPI) run(ctx context.Context, req idempotentRequest) (run runResult) {
	waiting, cancel := context.WithTimeout(ctx, req.prefer.wait)
	defer cancel()
	for {
		run.err = a.limiter.Do(ctx, req.AccountID, func(ctx context.Context) (err error) {
			run.Result, err = a.execute(ctx, req)
			return err
		})
		if req.prefer.wait == 0 || !errors.Is(run.err, idempotency.ErrInProgress) {
			return run
		}
		run.waited = 0
		if !a.engine.AwaitTurn(waiting, req.AccountID, run.KeyID) {
			return run
		}
		run.waited = req.prefer.wait
		if waiting.Err() != nil {
			return run
		}
	}
}

// execute has a permit, so the body of a shed request is not parsed.
func (a accountAPI) execute(ctx context.Context, req idempotentRequest) (result idempotency.Result, err error) {
	if req.Params, err = idempotency.Canonicalize(req.body); err != nil {
		return result, err
	}
	if result, err = req.execute(ctx, req.Request); err != nil {
		keyed := &keyedError{error: err}
		if expired, reaped := errors.AsType[*idempotency.KeyExpiredError](err); reaped {
			keyed.created = a.operations.Links(expired.Key)
		}
		err = keyed
	}
	return result, err
}

func (a accountAPI) writeRunResult(w http.ResponseWriter, r *http.Request, key idempotency.Key, run runResult) error {
	entryOf(r.Context()).result(run.Result, run.err)
	applied := preferences{wait: run.waited}
	if required, waits := errors.AsType[*operations.ActionRequiredError](run.err); waits {
		return a.writeAccepted(w, r, key, applied, required)
	}
	applied.write(w.Header())
	if run.err != nil {
		return run.err
	}
	writeResult(w, run.Result)
	return nil
}
