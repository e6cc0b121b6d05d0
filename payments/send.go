package payments

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// maxAttempts bounds the attempts of one call. The next run of the key tries again.
const maxAttempts = 3

type call struct {
	name     string // for the log
	key      string // "" for reads
	intentID string // "" if there is none yet
	invalid  error  // of an argument; nothing is sent
	optional bool   // not every account and server offers the call
}

// do makes a call that returns one object. matches reports whether it is the requested
// one.
func do[S, T any](
	ctx context.Context, c *Client, call call,
	convert func(S) (T, error), matches func(T) bool, send func(stripe.Params) (S, error),
) (T, error) {
	var object, none T
	err := c.run(ctx, call, func(ctx context.Context) error {
		response, err := send(stripe.Params{Context: ctx, IdempotencyKey: optional(call.key)})
		if err != nil {
			return err
		}
		if object, err = convert(response); err != nil {
			return err
		}
		if !matches(object) {
			return ErrMismatch
		}
		return nil
	})
	if err != nil {
		return none, err
	}
	return object, nil
}

// run repeats an attempt with the same key until the outcome is final or the budget is
// spent. A NotExecuted after an attempt that may have been executed proves nothing
// about the call, so the outcome stays Unknown.
func (c *Client) run(ctx context.Context, call call, send func(context.Context) error) error {
	if call.invalid != nil {
		return call.invalid
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	budget := time.Until(deadline) // the caller's deadline may be earlier
	mayHaveExecuted := false
	for n := 1; ; n++ {
		failed := c.attempt(ctx, call, n, budget/2, send)
		if failed == nil {
			return nil
		}
		if mayHaveExecuted && failed.Outcome == NotExecuted {
			failed.Outcome = Unknown
		}
		mayHaveExecuted = failed.Outcome == Unknown
		if n == maxAttempts || !failed.retryable() || !c.waitForRetry(ctx, n, failed.minBackoff, budget/10) {
			return failed
		}
	}
}

// Attempt is one HTTP attempt of a call.
type Attempt struct {
	Call string // create, confirm, get, cancel, refund, get refund, search, list, list refunds or list all refunds
	Took time.Duration
	Err  *Error // nil if it succeeded
}

// attempt sends the request once, within half of the call's budget, and returns nil for
// success. The rest is for a retry: a firewall may have dropped the idle connection. A
// shorter limit would make slow confirms Unknown.
func (c *Client) attempt(ctx context.Context, call call, n int, limit time.Duration, send func(context.Context) error) *Error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, trace := traceSend(ctx)
	start := time.Now()
	failed := classify(send(ctx), trace, call, KeyMode(c.config.SecretKey) == "test")
	took := time.Since(start)
	c.logAttempt(ctx, call, n, took, trace, failed)
	if c.config.Observe != nil {
		c.config.Observe(Attempt{Call: call.name, Took: took, Err: failed})
	}
	return failed
}

func (c *Client) logAttempt(ctx context.Context, call call, n int, took time.Duration, trace *sendTrace, failed *Error) {
	level, outcome := slog.LevelInfo, "answered"
	attrs := []slog.Attr{
		slog.String("call", call.name),
		slog.String("idempotency_key", call.key),
		slog.String("payment_intent", call.intentID),
		slog.Int("attempt", n),
		slog.Duration("duration", took),
		slog.Int("status", trace.status),
		slog.String("request_id", printable(trace.header.Get("Request-Id"))),
	}
	if failed != nil {
		outcome = failed.Outcome.String()
		attrs = append(attrs, slog.String("error", failed.Error()))
		switch {
		case failed.NeedsOperator:
			level = slog.LevelError
		case failed.Outcome == Unknown || failed.Outcome == NotExecuted:
			level = slog.LevelWarn
		}
	}
	c.config.Logger.LogAttrs(ctx, level, "payment provider call", append(attrs, slog.String("outcome", outcome))...)
}

// waitForRetry waits for the backoff after attempt n, at least minBackoff. It returns
// false if less than needed would be left: an attempt without time for its response
// turns NotExecuted into Unknown.
func (c *Client) waitForRetry(ctx context.Context, n int, minBackoff, needed time.Duration) bool {
	wait := max(jitter(c.config.Backoff<<(n-1)), minBackoff)
	deadline, _ := ctx.Deadline()
	if time.Until(deadline)-wait < needed {
		return false
	}
	return c.sleep(ctx, wait) == nil
}

func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // jitter needs no secrecy
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxResponse bounds a decompressed response. A page of 100 intents has about 200 KiB.
const maxResponse = 1 << 20

// sendTrace records the network activity of one attempt, which stripe-go hides.
type sendTrace struct {
	requested, obtained atomic.Int32 // connections
	reachedTransport    bool
	status              int
	header              http.Header
}

type sendTraceKey struct{}

func traceSend(ctx context.Context) (context.Context, *sendTrace) {
	t := &sendTrace{}
	ctx = context.WithValue(ctx, sendTraceKey{}, t)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.requested.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { t.obtained.Add(1) },
	}), t
}

// notSent reports whether the request certainly never left: the transport did not get
// it, or obtained none of the connections it requested. Without a trace (requested is 0)
// nothing is proved.
func (t *sendTrace) notSent() bool {
	return !t.reachedTransport || t.requested.Load() > 0 && t.obtained.Load() == 0
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	err := ctx.Err()
	// Timers and the monotonic clock stop while a machine is suspended. The wall clock
	// detects an expired call after the resume.
	if deadline, ok := ctx.Deadline(); ok && err == nil && time.Now().Round(0).After(deadline.Round(0)) {
		err = context.DeadlineExceeded
	}
	if err != nil {
		_ = req.Body.Close()
		return nil, err
	}
	trace := ctx.Value(sendTraceKey{}).(*sendTrace)
	trace.reachedTransport = true
	once := *req // a RoundTripper must not change the request
	// Without GetBody, net/http cannot rewind the body of a request that it has begun to
	// send. Otherwise it would send the request again when a reused connection breaks,
	// uncounted and after the check above. stripe-go sets a body in every request, even
	// if it is empty (R13).
	once.GetBody = nil
	resp, err := t.base.RoundTrip(&once)
	if err != nil {
		return nil, err
	}
	trace.status, trace.header = resp.StatusCode, resp.Header
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxResponse)
	return resp, nil
}
