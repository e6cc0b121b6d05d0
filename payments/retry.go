package payments

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"
)

const maxHTTPAttempts = 3 // of one call

type call struct {
	name     string
	key      string // "" for reads
	intentID string
	optional bool // a failure may be NotOffered

	method, path string
	params       any        // of stripe-go, or nil
	date         *time.Time // of a page, by Stripe's clock, or nil
}

func do[T any](ctx context.Context, c *Client, call call, decode decoder[T], matches func(T) bool) (object T, err error) {
	err = c.run(ctx, call, func(text []byte, header http.Header) error {
		received, err := decode(text, header)
		if err == nil && !matches(received) {
			return ErrMismatch
		}
		object = received // the zero value after an error
		return err
	})
	return object, err
}

// run repeats an attempt with the same key. NotExecuted proves nothing about an earlier attempt
// that was Unknown, so the call stays Unknown, unless Stripe repeated the response of that attempt.
func (c *Client) run(ctx context.Context, call call, read func(text []byte, header http.Header) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	budget := time.Until(deadline)
	earlierUnknown := false
	for n := 1; ; n++ {
		failed := c.attempt(ctx, call, n, budget/2, read)
		if failed == nil {
			return nil
		}
		failed.EarlierUnknown = earlierUnknown
		if earlierUnknown && failed.Outcome == NotExecuted && !failed.SavedUnderKey {
			failed.Outcome = Unknown
		}
		earlierUnknown = earlierUnknown || failed.Outcome == Unknown
		limit := c.config.Backoff << (n - 1)
		pause := limit - rand.N(limit/2+1) //nolint:gosec // jitter needs no secrecy
		// Without time for its response, another attempt would turn NotExecuted into Unknown.
		tooLate := time.Until(deadline)-pause < budget/10
		if n == maxHTTPAttempts || !failed.retryable() || tooLate {
			return failed
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return failed
		}
	}
}

// Calls are the values of [HTTPAttempt.Call].
func Calls() []string {
	return []string{
		"create", "confirm", "get", "cancel", "search", "list", "refund", "list_refunds", "list_all_refunds",
		"list_disputes", "list_all_disputes", "list_events",
	}
}

// HTTPAttempt is one HTTP attempt of a call.
type HTTPAttempt struct {
	Call string
	Took time.Duration
	Err  *Error // nil if it succeeded
}

// OutcomeNeedsOperator is the outcome of an attempt that failed because of a bug or the
// configuration, not because of the client or the card.
const OutcomeNeedsOperator = "needs_operator"

// Outcome returns the word for the result in the log and in the metrics: answered, needs_operator
// or an [Outcome].
func (a HTTPAttempt) Outcome() string {
	switch {
	case a.Err == nil:
		return "answered"
	case a.Err.NeedsOperator:
		return OutcomeNeedsOperator
	default:
		return a.Err.Outcome.String()
	}
}

// attempt sends the request once. limit leaves time for a retry, because a reused connection may
// be dead.
func (c *Client) attempt(ctx context.Context, call call, n int, limit time.Duration, read func([]byte, http.Header) error) *Error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, trace := traceSend(ctx)
	start := time.Now()
	text, err := c.send(ctx, call, trace)
	if err == nil {
		err = read(text, trace.header)
	}
	failed := classify(err, trace, call)
	c.logNotice(ctx, trace.header)
	made := HTTPAttempt{Call: call.name, Took: time.Since(start), Err: failed}
	c.logAttempt(ctx, call, n, made, trace)
	if c.config.Observe != nil {
		c.config.Observe(made)
	}
	return failed
}

func (c *Client) logAttempt(ctx context.Context, call call, n int, made HTTPAttempt, trace *sendTrace) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("call", call.name),
		slog.String("provider_key", call.key),
		slog.String("payment_intent", call.intentID),
		slog.Int("attempt", n),
		slog.Float64("duration_seconds", made.Took.Seconds()),
		slog.Int("status", trace.status),
		slog.String("request_id", printable(trace.header.Get("Request-Id"))),
	}
	if failed := made.Err; failed != nil {
		attrs = append(attrs, slog.String("error", failed.Error()))
		switch {
		case failed.NeedsOperator:
			level = slog.LevelError
		case failed.Outcome == Unknown || failed.Outcome == NotExecuted:
			level = slog.LevelWarn
		}
	}
	c.config.Logger.LogAttrs(ctx, level, "payment provider call", append(attrs, slog.String("outcome", made.Outcome()))...)
}

// logNotice logs what Stripe wants an operator to know, such as that the version of its API is outdated. Stripe
// repeats it in each response, so it is logged once a day.
func (c *Client) logNotice(ctx context.Context, header http.Header) {
	notice, last, now := withoutSecrets(header.Get("Stripe-Notice")), c.noticed.Load(), time.Now().Unix()
	if notice != "" && now-last >= 24*60*60 && c.noticed.CompareAndSwap(last, now) {
		c.config.Logger.WarnContext(ctx, "notice of the payment provider", "notice", notice)
	}
}
