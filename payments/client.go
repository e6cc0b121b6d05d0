package payments

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/dispute"
	"github.com/stripe/stripe-go/v79/form"
	"github.com/stripe/stripe-go/v79/paymentintent"
	"github.com/stripe/stripe-go/v79/refund"
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
	api      backend
	intents  paymentintent.Client
	refunds  refund.Client
	disputes dispute.Client
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
	api := backend{library.(*stripe.BackendImplementation), cfg.Transport}
	return &Client{
		config:   cfg,
		api:      api,
		intents:  paymentintent.Client{B: api, Key: cfg.SecretKey},
		refunds:  refund.Client{B: api, Key: cfg.SecretKey},
		disputes: dispute.Client{B: api, Key: cfg.SecretKey},
	}
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

// maxObject is in bytes. A recorded 3-D Secure intent has 8 KiB. Its metadata and that of its payment
// method can add 54 KiB each, and more where JSON escapes them.
const maxObject = 1 << 20

// sendTrace records the network activity of one attempt, which stripe-go hides.
type sendTrace struct {
	key                 string       // of the call
	requested, obtained atomic.Int32 // connections
	handedOver          bool         // to the HTTP transport
	status              int
	header              http.Header
}

type sendTraceKey struct{}

func traceSend(ctx context.Context, key string) (context.Context, *sendTrace) {
	t := &sendTrace{key: key}
	ctx = context.WithValue(ctx, sendTraceKey{}, t)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.requested.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { t.obtained.Add(1) },
	}), t
}

// notSent reports whether the request certainly never left.
func (t *sendTrace) notSent() bool {
	return !t.handedOver || t.requested.Load() > 0 && t.obtained.Load() == 0
}

// backend sends requests in place of stripe-go's own code, which repeats them and parses each
// response three times. It follows no redirect, because the target would receive the API key and
// answer for Stripe (R31, one call, one answer).
type backend struct {
	*stripe.BackendImplementation
	transport http.RoundTripper
}

func (b backend) Call(method, path, key string, params stripe.ParamsContainer, result stripe.LastResponseSetter) error {
	values := &form.Values{}
	form.AppendTo(values, params)
	return b.CallRaw(method, path, key, values, params.GetParams(), result)
}

func (b backend) CallRaw(method, path, key string, values *form.Values, params *stripe.Params, result stripe.LastResponseSetter) error {
	body := values.Encode()
	if method == http.MethodGet && body != "" {
		path, body = path+"?"+body, ""
	}
	req, err := b.NewRequest(method, path, key, "application/x-www-form-urlencoded", params)
	// net/http rejects these too, but its errors look like those of the network.
	if err != nil || !slices.Contains([]string{"http", "https"}, req.URL.Scheme) || strings.ContainsFunc(key, unicode.IsControl) {
		return errInvalidRequest // err may quote the API key or the URL
	}
	ctx := req.Context()
	trace := ctx.Value(sendTraceKey{}).(*sendTrace)
	// stripe-go invents a key if there is none, and trims one with spaces.
	if method == http.MethodPost && (trace.key == "" || trace.key != req.Header.Get("Idempotency-Key")) {
		return errProviderKey
	}
	// Timers and the monotonic clock stop while a machine is suspended.
	if deadline, _ := ctx.Deadline(); time.Now().Round(0).After(deadline.Round(0)) {
		return context.DeadlineExceeded
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Without GetBody, net/http cannot resend the request when a reused connection breaks (R13, one sender).
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	trace.handedOver = true
	resp, err := b.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	trace.status, trace.header = resp.StatusCode, resp.Header
	limit := int64(maxObject)
	if method == http.MethodGet { // maybe a page
		limit *= pageSize
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, limit))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return b.ResponseToError(resp, text)
	}
	if resp.StatusCode != http.StatusOK { // a redirect, or not Stripe
		return ErrUnreadable
	}
	if object, ok := result.(json.Unmarshaler); ok {
		err = object.UnmarshalJSON(text) // json.Unmarshal would check the syntax first
	} else {
		err = json.Unmarshal(text, result)
	}
	result.SetLastResponse(&stripe.APIResponse{Header: resp.Header})
	return err
}
