package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Request is a POST. Every attempt sends the same one.
type Request struct {
	Key  Key
	Path string // such as /v1/orders
	Body []byte // JSON

	Success int          // status of the success; 0 means 201
	Prefer  []Preference // may be nil
}

// Preference is a wish that the API may honour (RFC 7240).
type Preference string

// RespondAsync asks the API to respond as soon as it has stored the request durably. The call ends with an
// [*AcceptedError] if the work is not finished then.
const RespondAsync Preference = "respond-async"

// Wait asks the API to wait for an earlier request with the same key instead of responding that it is in
// progress, and in [Client.GetKey] for its end. The API waits for at most 30 seconds.
func Wait(limit time.Duration) Preference {
	return Preference("wait=" + strconv.Itoa(int(limit.Seconds())))
}

// Attempt is a request and its response.
type Attempt struct {
	Method, Path string
	Key          Key      // "" for reads
	Response     Response // zero if Err is set
	Err          error    // set if there is no complete response
}

// Response is a complete response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// String returns the status, and the body unless it contains a client secret.
func (r Response) String() string {
	if bytes.Contains(r.Body, []byte(`"client_secret"`)) {
		return fmt.Sprintf("%d: [hidden]", r.Status)
	}
	return fmt.Sprintf("%d: %s", r.Status, r.Body)
}

// Replayed reports whether an earlier request created the response.
func (r Response) Replayed() bool { return r.Header.Get("Idempotent-Replayed") == "true" }

const maxRetryAfter = 365 * 24 * time.Hour

// RetryAfter returns the delay that the response requests, or 0. A date is relative to the Date header.
func (r Response) RetryAfter() time.Duration {
	value := r.Header.Get("Retry-After")
	if date, err := http.ParseTime(value); err == nil {
		now, err := http.ParseTime(r.Header.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		return min(max(date.Sub(now), 0), maxRetryAfter)
	}
	seconds, err := strconv.ParseUint(value, 10, 32)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter) // if the value is out of range, seconds is the maximum of its type
}

const maxResponse = 1 << 20 // bytes, three times the longest page of a list

// Send makes one attempt. The request may take effect even if Send returns an error.
func (c *Client) Send(ctx context.Context, r Request) (Response, error) {
	if err := r.Key.validate(); err != nil {
		return Response{}, err
	}
	return c.exchange(ctx, r)
}

// method returns the method of a request and the status of its success.
func (r Request) method() (method string, success int) {
	if r.Key == "" { // a read
		return http.MethodGet, http.StatusOK
	}
	return http.MethodPost, cmp.Or(r.Success, http.StatusCreated)
}

func (c *Client) exchange(ctx context.Context, r Request) (response Response, err error) {
	method, _ := r.method()
	defer func() {
		c.config.Observe(Attempt{Method: method, Path: r.Path, Key: r.Key, Response: response, Err: err})
	}()
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.config.BaseURL+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return Response{}, err
	}
	request.Header.Set("Authorization", "Bearer "+c.config.APIKey)
	request.Header.Set("Accept", "application/json, application/problem+json")
	for _, preference := range r.Prefer {
		request.Header.Add("Prefer", string(preference))
	}
	if r.Key != "" {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", string(r.Key))
		// Without GetBody, net/http cannot resend the request by itself (R31, one call, one answer).
		request.Body, request.GetBody = io.NopCloser(request.Body), nil
	}
	received, err := c.http.Do(request)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = received.Body.Close() }()
	if received.StatusCode < http.StatusOK { // 101, whose body is the connection itself, so the deadline would not end it
		return Response{}, fmt.Errorf("%w: status %d", ErrUnreadable, received.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(received.Body, maxResponse+1))
	if err != nil {
		return Response{}, fmt.Errorf("read the response: %w", err)
	}
	if len(body) > maxResponse {
		return Response{}, fmt.Errorf("%w: more than %d bytes", ErrUnreadable, maxResponse)
	}
	return Response{received.StatusCode, received.Header, body}, nil
}
