package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/form"
)

// Config configures a [Client].
type Config struct {
	SecretKey string        // sk_… or rk_…
	BaseURL   string        // "" means Stripe's own
	Timeout   time.Duration // bounds a call or a page with its retries
	Logger    *slog.Logger

	Observe func(HTTPAttempt) // may be nil

	WebhookSecret string // whsec_…; "" disables webhooks

	// Transport is by default [NewTransport]. A wrapper must pass on the context.
	Transport http.RoundTripper

	// Backoff is the longest pause before the second attempt. The default is 500 ms, because Stripe
	// holds most locks for less.
	Backoff time.Duration
}

// Format hides the secrets.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Config") }

// KeyMode returns "test", "live" or "unknown", by the prefix of an API key.
func KeyMode(key string) string {
	for _, mode := range []string{"test", "live"} {
		if strings.HasPrefix(key, "sk_"+mode+"_") || strings.HasPrefix(key, "rk_"+mode+"_") {
			return mode
		}
	}
	return "unknown"
}

// Client calls Stripe. It is safe for concurrent use.
type Client struct {
	config   Config
	requests *stripe.BackendImplementation // builds them, and sends none
	noticed  atomic.Int64                  // see logNotice
}

// Format hides the secrets.
func (*Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Client") }

// New returns a Client.
func New(cfg Config) *Client {
	if cfg.Transport == nil {
		cfg.Transport = NewTransport()
	}
	cfg.Backoff = cmp.Or(cfg.Backoff, 500*time.Millisecond)
	library := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:           optional(cfg.BaseURL),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull}, // it would log whole responses
	})
	return &Client{config: cfg, requests: library.(*stripe.BackendImplementation)}
}

// Close closes idle connections. The client remains usable.
func (c *Client) Close() {
	(&http.Client{Transport: c.config.Transport}).CloseIdleConnections() //nolint:forbidigo // it sends nothing
}

// NewTransport returns the default transport of a [Client], which uses no proxy.
func NewTransport() *http.Transport {
	return &http.Transport{
		// Longer timeouts would leave no time for a retry.
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost:    1000, // all requests go to one host
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Limits of a response in bytes. A recorded 3-D Secure intent has 8 KiB. Its metadata and that of its payment
// method can add 54 KiB each, and more where JSON escapes them. So a page of a hundred can have 12 MiB.
const (
	maxObject = 1 << 20
	maxPage   = 32 << 20
)

// sendTrace records the network activity of one attempt.
type sendTrace struct {
	requested, obtained atomic.Int32 // connections
	handedOver          bool         // to the HTTP transport
	status              int
	header              http.Header
}

func traceSend(ctx context.Context) (context.Context, *sendTrace) {
	t := &sendTrace{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.requested.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { t.obtained.Add(1) },
	}), t
}

// notSent reports whether the request certainly never left.
func (t *sendTrace) notSent() bool {
	return !t.handedOver || t.requested.Load() > 0 && t.obtained.Load() == 0
}

// send sends a request of stripe-go, and returns the body of a success. stripe-go itself would repeat the
// request, and reject a response in which any member has another type than it expects. send follows no
// redirect, because the target would receive the API key and answer for Stripe (R31, one call, one answer).
func (c *Client) send(ctx context.Context, call call, trace *sendTrace) ([]byte, error) {
	values := &form.Values{}
	if call.params != nil {
		form.AppendTo(values, call.params)
	}
	path, body, limit := call.path, values.Encode(), int64(maxObject)
	if call.method == http.MethodGet { // maybe of a page
		path, body, limit = strings.TrimSuffix(path+"?"+body, "?"), "", maxPage
	}
	params := &stripe.Params{Context: ctx, IdempotencyKey: optional(call.key)}
	req, err := c.requests.NewRequest(call.method, path, c.config.SecretKey, "application/x-www-form-urlencoded", params)
	// net/http rejects these too, but its errors look like those of the network.
	if err != nil || !slices.Contains([]string{"http", "https"}, req.URL.Scheme) || strings.ContainsFunc(c.config.SecretKey, unicode.IsControl) {
		return nil, errNotSent // err may quote the API key or the URL
	}
	// stripe-go invents a key if there is none, and trims one with spaces.
	if call.method == http.MethodPost && (call.key == "" || call.key != req.Header.Get("Idempotency-Key")) {
		return nil, errNotSent
	}
	// Timers and the monotonic clock stop while a machine is suspended.
	if deadline, _ := ctx.Deadline(); time.Now().Round(0).After(deadline.Round(0)) {
		return nil, context.DeadlineExceeded
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Without GetBody, net/http cannot resend the request when a reused connection breaks (R13, one sender).
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	trace.handedOver = true
	resp, err := c.config.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	trace.status, trace.header = resp.StatusCode, resp.Header
	// Stripe sends neither a redirect nor a 101, whose body is the connection, which no context closes.
	if resp.StatusCode != http.StatusOK && resp.StatusCode < http.StatusBadRequest {
		return nil, ErrUnreadable
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, limit))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = decodeFailure(text)
	}
	return text, err
}

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

// run repeats an attempt with the same key. If an earlier attempt may have been executed, the call stays Unknown even
// if the last one was not executed. The exception is a response that Stripe has saved, because it is that of the
// earlier attempt.
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
		case failed.Outcome == Unknown || failed.Outcome == NotExecuted || failed.Outcome == NotOffered:
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

// Check lists intents and refunds, to try the secret key. rejected means that Stripe refused the
// key, or its permission to read one of them, so that it can never work.
func (c *Client) Check(ctx context.Context) (rejected bool, err error) {
	now := time.Now() // nothing is newer, so the pages are empty
	if _, _, err = c.List(ctx, now, ""); err != nil {
		err = fmt.Errorf("read PaymentIntents: %w", err)
	} else if _, _, err = c.ListAllRefunds(ctx, now, ""); err != nil {
		err = fmt.Errorf("read Refunds: %w", err)
	}
	failed, ok := errors.AsType[*Error](err)
	return ok && failed.KeyRejected(), err
}

// ClockSkew is how far the provider's clock may be from the database's.
const ClockSkew = time.Hour

// StepContext bounds the calls of a step, which read and send. Its deadline has no monotonic time, because
// that stops while a machine is suspended.
func (c *Client) StepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Now().Add(c.config.Timeout).Round(0))
}

// SendContext leaves two fifths of the step's remaining time for reading the result.
func SendContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)*2/5))
}

// Key returns the provider key of a step's call. Its form never changes, because another key would
// be another payment (R5, derived ids). number counts the keys of the step from 1.
func Key(keyID uuid.UUID, step string, number int) string {
	key := "orders-api-" + keyID.String() + step
	if number > 1 {
		key += "-" + strconv.Itoa(number)
	}
	return key
}

// Failure returns the error of a call as an [*Error], or nil.
func Failure(err error) *Error {
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*Error](err)
	if !ok {
		failed = &Error{NeedsOperator: true, Code: "unexpected_error"} // with Outcome Unknown, which is safe
	}
	return failed
}

// MetadataOrderID is the name of the order's id in the metadata.
const MetadataOrderID = "order_id"

// Metadata has the ids that the provider stores with a payment or a refund of ours. Their names never
// change, because payments and refunds are found by them.
type Metadata struct {
	AccountID, OrderID, KeyID uuid.UUID
	RefundID                  uuid.UUID // uuid.Nil in that of a payment
}

// Encode returns the metadata as it is sent.
func (m Metadata) Encode() map[string]string {
	encoded := map[string]string{
		"account_id":         m.AccountID.String(),
		MetadataOrderID:      m.OrderID.String(),
		"idempotency_key_id": m.KeyID.String(),
	}
	if m.RefundID != uuid.Nil {
		encoded["refund_id"] = m.RefundID.String()
	}
	return encoded
}

// ParseMetadata reads an object's metadata. An id that is missing or malformed is uuid.Nil, as in an
// object of another program.
func ParseMetadata(encoded map[string]string) (m Metadata) {
	m.AccountID, _ = uuid.Parse(encoded["account_id"])
	m.OrderID, _ = uuid.Parse(encoded[MetadataOrderID])
	m.KeyID, _ = uuid.Parse(encoded["idempotency_key_id"])
	m.RefundID, _ = uuid.Parse(encoded["refund_id"])
	return m
}
