package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Request is one purchase or refund: what every attempt sends.
type Request struct {
	Key  Key
	Path string // such as /v1/orders
	Body []byte // JSON, the same bytes in every attempt
}

// Attempt is one request and its response.
type Attempt struct {
	Method, Path string
	Key          Key      // "" for reads
	Response     Response // zero without a complete response
	Err          error    // why there is no complete response
}

// Response is a complete response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// String returns status and body.
func (r Response) String() string { return fmt.Sprintf("%d: %s", r.Status, r.Body) }

// Replayed reports whether the response was created by an earlier request.
func (r Response) Replayed() bool { return r.Header.Get("Idempotent-Replayed") == "true" }

// maxRetryAfter prevents an overflow of the sum of delays.
const maxRetryAfter = 365 * 24 * time.Hour

// RetryAfter returns the requested delay, 0 if there is none: seconds, or a date
// relative to the Date header (RFC 9110 section 10.2.3).
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
	return min(time.Duration(seconds)*time.Second, maxRetryAfter) // if out of range, seconds is the maximum
}

// maxResponse bounds a response in bytes. A list of 100 of the largest orders is
// smaller.
const maxResponse = 64 << 20

// Send makes one attempt and returns its response without judging it. An error proves
// nothing about the request. Use [Client.Do] to get a final response.
func (c *Client) Send(ctx context.Context, r Request) (Response, error) {
	if err := r.Key.validate(); err != nil {
		return Response{}, err
	}
	return c.exchange(ctx, r)
}

// method returns the method of a request and the status of its success. Only a read has
// no key.
func (r Request) method() (method string, success int) {
	if r.Key == "" {
		return http.MethodGet, http.StatusOK
	}
	return http.MethodPost, http.StatusCreated
}

func (c *Client) exchange(ctx context.Context, r Request) (Response, error) {
	method, _ := r.method()
	response, err := c.roundTrip(ctx, method, r)
	c.config.Observe(Attempt{Method: method, Path: r.Path, Key: r.Key, Response: response, Err: err})
	return response, err
}

func (c *Client) roundTrip(ctx context.Context, method string, r Request) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.config.BaseURL+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return Response{}, err
	}
	request.GetBody = nil // net/http must not retry: attempts are counted
	request.Header.Set("Authorization", "Bearer "+c.config.APIKey)
	request.Header.Set("Accept", "application/json, application/problem+json")
	if r.Key != "" {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", string(r.Key))
	}
	received, err := c.http.Do(request)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = received.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(received.Body, maxResponse+1))
	if err != nil {
		return Response{}, fmt.Errorf("read the response: %w", err)
	}
	if len(body) > maxResponse {
		return Response{}, fmt.Errorf("%w: more than %d bytes", ErrUnreadable, maxResponse)
	}
	return Response{Status: received.StatusCode, Header: received.Header, Body: body}, nil
}
