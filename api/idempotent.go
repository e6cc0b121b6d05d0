package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
)

type runResult struct {
	idempotency.Result
	err    error
	waited time.Duration // the wait that the client asked for, or 0 if the request did not have to wait, or could not
}

// runFunc executes a request. It calls onClaim, if there is one, once the claim is durable.
type runFunc = func(ctx context.Context, onClaim func()) runResult

// Post returns the handler of an operation. It panics if the operation is not registered, because no completer
// would finish its keys.
func (h *Handlers) Post(operation string) http.Handler {
	op := h.Engine.Operation(operation)
	if op == nil {
		panic("api: operation " + operation + " is not registered") //nolint:forbidigo // at the start
	}
	return handlerFunc(func(w http.ResponseWriter, r *http.Request) error { return h.serve(w, r, op) })
}

// serve executes an operation under a key and writes its response.
func (h *Handlers) serve(w http.ResponseWriter, r *http.Request, operation idempotency.Operation) error {
	if _, err := pathIDs(r); err != nil { // the operation itself reads the id
		return err
	}
	key, err := readKey(r.Header)
	if err != nil {
		return err
	}
	w.Header().Set("Idempotency-Key", r.Header.Get("Idempotency-Key"))
	account := accountID(r.Context())
	entryOf(r.Context()).add(slog.String("key_id", idempotency.KeyID(account, key).String()))

	if _, err := readQuery(r.URL.RawQuery); err != nil {
		return err // A client that expects an effect of the query must not be charged without it.
	}
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	prefer := readPreferences(r.Header)
	run := func(ctx context.Context, onClaim func()) runResult {
		request := idempotency.Request{AccountID: account, Key: key, Method: r.Method, Path: r.URL.Path, OnClaim: onClaim}
		return h.inTurn(ctx, account, prefer.wait, func(ctx context.Context) (idempotency.Result, error) {
			return h.execute(ctx, operation, request, body)
		})
	}
	if prefer.respondAsync {
		return h.serveAsync(w, r, key, prefer, run)
	}
	return h.writeRunResult(w, r, key, run(r.Context(), nil))
}

// inTurn does the work of a key with a permit. While another run holds the key, inTurn waits for
// that one without a permit, for at most the time to wait, and then tries again.
func (h *Handlers) inTurn(ctx context.Context, account uuid.UUID, wait time.Duration, work func(context.Context) (idempotency.Result, error)) (run runResult) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		run.err = h.Limiter.Do(ctx, func(ctx context.Context) (err error) {
			run.Result, err = work(ctx)
			return err
		})
		if wait == 0 || !errors.Is(run.err, idempotency.ErrInProgress) {
			return run
		}
		run.waited = 0
		if !h.Engine.AwaitTurn(waiting, account, run.KeyID) {
			return run
		}
		run.waited = wait
		if waiting.Err() != nil {
			return run
		}
	}
}

// execute parses the body and does the request. The caller has a permit, so the body of a request
// that admission rejects is never parsed.
func (h *Handlers) execute(ctx context.Context, operation idempotency.Operation, request idempotency.Request, body []byte) (result idempotency.Result, err error) {
	if request.Params, err = idempotency.Canonicalize(body); err != nil {
		return result, err
	}
	if result, err = h.Engine.Do(ctx, request, operation); err != nil {
		keyed := &keyedError{error: err}
		if expired, ok := errors.AsType[*idempotency.KeyExpiredError](err); ok {
			keyed.created = httpjson.LinksOf(h.Engine, expired.Key)
		}
		err = keyed
	}
	return result, err
}

func (h *Handlers) writeRunResult(w http.ResponseWriter, r *http.Request, key idempotency.Key, run runResult) error {
	entryOf(r.Context()).result(run.Result, run.err)
	applied := preferences{wait: run.waited}
	if required, waits := errors.AsType[*httpjson.ActionRequiredError](run.err); waits {
		return h.writeAccepted(w, r, key, applied, required)
	}
	applied.write(w.Header())
	if run.err != nil {
		return run.err
	}
	writeResult(w, run.Result)
	return nil
}

// writeAccepted responds with 202 to a request that is not finished yet. It reads the status without a
// permit, because its run had one, and a rejection now would only make the client repeat the request.
func (h *Handlers) writeAccepted(w http.ResponseWriter, r *http.Request, key idempotency.Key, applied preferences, required *httpjson.ActionRequiredError) error {
	status, err := h.readKeyStatus(r.Context(), accountID(r.Context()), key)
	if err != nil {
		return err // The same request again finds the key.
	}
	state := idempotency.StateActionRequired
	if required == nil {
		state = idempotency.StateInProgress
		entryOf(r.Context()).setOutcome("accepted")
	}
	applied.write(w.Header())
	w.Header().Set("Location", keyAddress+keySegment(key))
	w.Header().Set("Retry-After", retryAfter[state])
	return writeJSON(w, http.StatusAccepted, h.view(status, required))
}

// Background counts and bounds the runs of respond-async, which outlive the connections of their
// clients. Its capacity is the maximum.
type Background chan struct{}

// Wait blocks until all runs have ended, or ctx ends. Meanwhile no run can begin.
func (b Background) Wait(ctx context.Context) error {
	for range cap(b) {
		select {
		case b <- struct{}{}:
			defer func() { <-b }()
		case <-ctx.Done():
			return fmt.Errorf("background runs: %w", ctx.Err())
		}
	}
	return nil
}

// start begins a run in the background and sends its result, or returns false if there are too many runs.
func (h *Handlers) start(ctx context.Context, results chan<- *runResult, run func(context.Context) runResult) bool {
	select {
	case h.Background <- struct{}{}:
	default:
		return false
	}
	go func() {
		begun, entry, result := time.Now(), &logEntry{}, runResult{}
		defer func() {
			if cause := recover(); cause != nil { // which would end the process
				entry.add(slog.String("stack", string(debug.Stack())))
				result.err = fmt.Errorf("panic: %v", cause)
			}
			entry.result(result.Result, result.err)
			if result.err != nil && !errors.Is(result.err, idempotency.ErrActionRequired) && !clientGone(ctx, result.err) {
				entry.problem(problemOf(result.err), result.err)
			}
			h.Logger.LogAttrs(ctx, entry.level, "background run", append([]slog.Attr{
				slog.String("request_id", entryOf(ctx).requestID),
				slog.String("account_id", accountID(ctx).String()),
				slog.String("key_id", result.KeyID.String()),
				slog.Float64("duration_seconds", time.Since(begun).Seconds()),
			}, entry.attrs...)...)
			results <- &result
			<-h.Background
		}()
		result = run(ctx)
	}()
	return true
}

// serveAsync executes the request in the background. It responds with 202 once the claim is
// durable, unless the client's wait suffices for the result.
func (h *Handlers) serveAsync(w http.ResponseWriter, r *http.Request, key idempotency.Key, prefer preferences, execute runFunc) error {
	results := make(chan *runResult, 2) // nil once the claim is durable, and then the result
	onClaim := sync.OnceFunc(func() { results <- nil })
	if !h.start(r.Context(), results, func(ctx context.Context) runResult { return execute(ctx, onClaim) }) {
		return h.writeRunResult(w, r, key, execute(r.Context(), nil)) // without the preference
	}
	run := <-results
	if run == nil && prefer.wait > 0 {
		select {
		case run = <-results:
			run.waited = prefer.wait
		case <-time.After(prefer.wait):
		}
	}
	switch {
	case run == nil:
		return h.writeAccepted(w, r, key, prefer, nil)
	case errors.Is(run.err, idempotency.ErrInProgress) && run.Runs > 0: // Another run has claimed the key.
		return h.writeAccepted(w, r, key, preferences{respondAsync: true, wait: run.waited}, nil)
	default:
		return h.writeRunResult(w, r, key, *run)
	}
}
