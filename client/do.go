package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"
)

// Do sends the request, the same bytes under the same key, until its answer is
// final. It returns
//
//   - the answer, a 201;
//   - a [*Problem] whose Retry is not RetrySameKey: the API rejected the request, and no send
//     of this call has left a doubt;
//   - an [*ActionRequiredError]: the customer must approve the payment. Afterwards,
//     call again with the same request and key;
//   - an [*OutcomeUnknownError] when the context ended before that, or when a
//     refusal does not settle what earlier sends did.
//
// Give ctx a deadline: without one, Do goes on until there is an answer.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	if err := r.Key.validate(); err != nil {
		return Response{}, err
	}
	answer, sends, err := c.repeat(ctx, post(r))
	var action *ActionRequiredError
	if errors.As(err, &action) {
		action.Key = r.Key
		return Response{}, action
	}
	var problem *Problem
	final := errors.As(err, &problem) && (sends == 1 || problem.Retry == RetryNewKey || problem.Outcome == OutcomeFinal)
	if err == nil || final {
		return answer, err
	}
	return Response{}, &OutcomeUnknownError{Key: r.Key, Attempts: sends, Problem: problem, cause: err}
}

// create is Do with params for a body and an answer read as T.
func create[T any](ctx context.Context, c *Client, key Key, path string, params any) (T, error) {
	body, err := json.Marshal(params)
	if err != nil {
		return *new(T), fmt.Errorf("client: encode the request: %w", err)
	}
	answer, err := c.Do(ctx, Request{Key: key, Path: path, Body: body})
	if err != nil {
		return *new(T), err
	}
	return decode[T](answer)
}

// read is a GET. It has no outcome that could be in doubt.
func read[T any](ctx context.Context, c *Client, call call) (T, error) {
	answer, _, err := c.repeat(ctx, call)
	if err != nil {
		return *new(T), fmt.Errorf("client: %w", err)
	}
	return decode[T](answer)
}

func decode[T any](answer Response) (T, error) {
	var result T
	if err := json.Unmarshal(answer.Body, &result); err != nil {
		return result, fmt.Errorf("client: the request succeeded, but its answer has another shape: %w", err)
	}
	return result, nil
}

// repeat sends a call until its answer is final, and says how often it did. The
// error is a *Problem that is final, or says why it stopped before.
func (c *Client) repeat(ctx context.Context, call call) (answer Response, sends int, err error) {
	for sends = 1; ; sends++ {
		answer, err = c.exchange(ctx, call)
		if err == nil {
			err = answer.outcome(call.success)
		}
		var problem *Problem
		var action *ActionRequiredError
		if err == nil || errors.As(err, &problem) && problem.Retry != RetrySameKey || errors.As(err, &action) {
			return answer, sends, err
		}
		if stopped := c.pause(ctx, sends, answer.RetryAfter()); stopped != nil {
			// The last answer as text: an error that wraps a problem says that it
			// is final.
			return Response{}, sends, fmt.Errorf("%w (last: %v)", stopped, err) //nolint:errorlint // see above
		}
	}
}

// pause waits after a send. It does not begin a wait that would outlast the
// context.
func (c *Client) pause(ctx context.Context, sends int, asked time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	limit := c.config.Backoff
	for n := 1; n < sends && limit < c.config.MaxBackoff; n++ {
		limit *= 2
	}
	wait := asked + c.config.Random(min(limit, c.config.MaxBackoff))
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return context.DeadlineExceeded
	}
	return c.config.Sleep(ctx, wait)
}

// outcome says what an answer means: nil for success, a [*Problem] when the API
// says no or not yet, an [*ActionRequiredError] when the customer must act, and [ErrUnreadable] for what is no answer of the API's.
func (a Response) outcome(success int) error {
	mediaType, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch mediaType {
	case "application/json":
		if a.Status == success && isObject(a.Body) {
			return nil
		}
		var key KeyStatus
		if a.Status == http.StatusAccepted && json.Unmarshal(a.Body, &key) == nil && key.Action != nil {
			return &ActionRequiredError{Action: *key.Action}
		}
	case "application/problem+json":
		var p Problem
		if json.Unmarshal(a.Body, &p) == nil && p.Retry.known() {
			return &p
		}
	}
	return fmt.Errorf("%w: status %d, %d bytes of %q", ErrUnreadable, a.Status, len(a.Body), mediaType)
}

// isObject says whether the body is one whole JSON object: without a length a
// cut answer looks like any other.
func isObject(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && json.Valid(body)
}
