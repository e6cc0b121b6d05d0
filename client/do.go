package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"time"
)

// Do repeats the request until a final response: a success, a [*Problem] whose Retry is not
// RetrySameKey, an [*ActionRequiredError] or an [*AcceptedError]. It returns an [*OutcomeUnknownError] if the context
// ends earlier, or if the problem does not resolve earlier attempts.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	if err := r.Key.validate(); err != nil {
		return Response{}, err
	}
	response, attempts, err := c.repeat(ctx, r)
	problem, rejected := errors.AsType[*Problem](err)
	resolved := rejected && (attempts == 1 || problem.Retry == RetryNewKey || problem.Outcome == OutcomeFinal)
	if err == nil || isPending(err) || resolved {
		return response, err
	}
	return Response{}, &OutcomeUnknownError{Key: r.Key, Attempts: attempts, Problem: problem, cause: err}
}

func post[T any](ctx context.Context, c *Client, r Request, params any) (T, error) {
	r.Body, _ = json.Marshal(params) // cannot fail
	response, err := c.Do(ctx, r)
	if err != nil {
		return *new(T), err
	}
	return decode[T](response)
}

func read[T any](ctx context.Context, c *Client, path string, prefer ...Preference) (T, error) {
	response, _, err := c.repeat(ctx, Request{Path: path, Prefer: prefer})
	if err != nil {
		return *new(T), err
	}
	return decode[T](response)
}

func decode[T any](response Response) (T, error) {
	var result T
	if err := json.Unmarshal(response.Body, &result); err != nil {
		return result, fmt.Errorf("client: the request succeeded, but its response cannot be decoded: %w", err)
	}
	return result, nil
}

// isPending reports whether a 202 ends the call.
func isPending(err error) bool {
	_, required := errors.AsType[*ActionRequiredError](err)
	_, accepted := errors.AsType[*AcceptedError](err)
	return required || accepted
}

func (c *Client) repeat(ctx context.Context, r Request) (response Response, attempts int, err error) {
	for attempts = 1; ; attempts++ {
		response, err = c.exchange(ctx, r)
		if err == nil {
			err = response.outcome(r)
		}
		problem, rejected := errors.AsType[*Problem](err)
		if err == nil || isPending(err) || rejected && problem.Retry != RetrySameKey {
			return response, attempts, err
		}
		if stopped := c.pause(ctx, attempts, response.RetryAfter()); stopped != nil {
			return Response{}, attempts, fmt.Errorf("%w (last: %v)", stopped, err) //nolint:errorlint // a wrapped problem would count as final
		}
	}
}

// pause waits before the next attempt. If the deadline of ctx is before the end of the wait, it fails
// at once.
func (c *Client) pause(ctx context.Context, attempts int, retryAfter time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	limit := c.config.Backoff
	for n := 1; n < attempts && limit < c.config.MaxBackoff; n++ {
		limit *= 2
	}
	wait := retryAfter + c.random(min(limit, c.config.MaxBackoff))
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return context.DeadlineExceeded
	}
	return c.sleep(ctx, wait)
}

// outcome returns nil for a success, the [*Problem], [*ActionRequiredError] or [*AcceptedError] that the
// response contains, or otherwise ErrUnreadable.
func (r Response) outcome(request Request) error {
	_, success := request.method()
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch mediaType {
	case "application/json":
		if r.Status == success && isObject(r.Body) {
			return nil
		}
		var key KeyStatus
		switch {
		case r.Status != http.StatusAccepted || json.Unmarshal(r.Body, &key) != nil:
		case key.Action != nil:
			return &ActionRequiredError{Key: request.Key, Action: *key.Action}
		case key.State != "" && slices.Contains(request.Prefer, RespondAsync):
			return &AcceptedError{Status: key}
		}
	case "application/problem+json":
		var p Problem
		known := []Retry{RetrySameKey, RetryCorrected, RetryNewKey, RetryNever}
		if json.Unmarshal(r.Body, &p) == nil && slices.Contains(known, p.Retry) {
			return &p
		}
	}
	return fmt.Errorf("%w: status %d, %d bytes of %q", ErrUnreadable, r.Status, len(r.Body), mediaType)
}

// isObject reports whether the body is a complete JSON object.
func isObject(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && json.Valid(body)
}
