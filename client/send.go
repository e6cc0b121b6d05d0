package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Request is one intent of somebody's: what is sent, as often as it takes, under
// one key.
type Request struct {
	Key  Key
	Path string // such as /v1/orders
	Body []byte // JSON; every send has these bytes
}

// Attempt is a request that was sent, and what came back.
type Attempt struct {
	Method, Path string
	Key          Key      // "" for reads
	Response     Response // zero when there was none
	Err          error    // why there was none
}

// Response is what came back, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// String returns status and body.
func (a Response) String() string { return fmt.Sprintf("%d: %s", a.Status, a.Body) }

// Replayed says whether the answer was made by an earlier send.
func (a Response) Replayed() bool { return a.Header.Get("Idempotent-Replayed") == "true" }

// maxRetryAfter is longer than anybody's patience, and keeps sums of waits from
// overflowing.
const maxRetryAfter = 365 * 24 * time.Hour

// RetryAfter is how long the answer asks to wait, 0 when it does not: seconds,
// or a date by the clock of whoever wrote it (RFC 9110 section 10.2.3).
func (a Response) RetryAfter() time.Duration {
	value := a.Header.Get("Retry-After")
	if date, err := http.ParseTime(value); err == nil {
		now, err := http.ParseTime(a.Header.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		return min(max(date.Sub(now), 0), maxRetryAfter)
	}
	seconds, err := strconv.ParseUint(value, 10, 64)
	if err != nil && seconds != math.MaxUint64 { // which is too many of them
		return 0
	}
	return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
}

// maxAnswer bounds an answer, in bytes. A list of a hundred of the largest orders
// fits in.
const maxAnswer = 64 << 20

// Send makes one exchange and returns what came of it, whatever that is: for
// those who look closer. An error says that there is no whole answer, which
// proves nothing about the request. To get something done, use [Client.Do].
func (c *Client) Send(ctx context.Context, r Request) (Response, error) {
	if err := r.Key.validate(); err != nil {
		return Response{}, err
	}
	return c.exchange(ctx, post(r))
}

// call is a request of either kind. It has a key exactly when it is a POST.
type call struct {
	method, path string
	key          Key
	body         []byte
	success      int  // the status to hope for
	waits        bool // for a request under way: PreferWait applies
}

func post(r Request) call {
	return call{method: http.MethodPost, path: r.Path, key: r.Key, body: r.Body, success: http.StatusCreated, waits: true}
}

func get(path string) call {
	return call{method: http.MethodGet, path: path, success: http.StatusOK}
}

func (c *Client) exchange(ctx context.Context, call call) (Response, error) {
	answer, err := c.roundTrip(ctx, call)
	c.config.Observe(Attempt{Method: call.method, Path: call.path, Key: call.key, Response: answer, Err: err})
	return answer, err
}

func (c *Client) roundTrip(ctx context.Context, call call) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, call.method, c.base+call.path, bytes.NewReader(call.body))
	if err != nil {
		return Response{}, err
	}
	request.GetBody = nil // net/http must not repeat it on its own: sends are counted
	request.Header.Set("Authorization", "Bearer "+c.config.APIKey)
	request.Header.Set("Accept", "application/json, application/problem+json")
	if call.key != "" {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", call.key.header())
	}
	if call.waits && c.config.PreferWait > 0 {
		request.Header.Set("Prefer", fmt.Sprintf("wait=%d", c.config.PreferWait/time.Second))
	}
	response, err := c.http.Do(request)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return Response{}, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxAnswer {
		return Response{}, fmt.Errorf("%w: more than %d bytes", ErrUnreadable, maxAnswer)
	}
	return Response{Status: response.StatusCode, Header: response.Header, Body: body}, nil
}
