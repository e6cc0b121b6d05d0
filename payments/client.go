package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
	"github.com/stripe/stripe-go/v79/refund"
)

// Config configures a [Client].
type Config struct {
	SecretKey string        // sk_test_…, rk_test_…, sk_live_… or rk_live_…, of one account
	BaseURL   string        // "" means Stripe's own
	Timeout   time.Duration // bounds one call, or one page of List, retries included
	Logger    *slog.Logger

	// Observe, if set, is called synchronously after each attempt.
	Observe func(Attempt)

	// WebhookSecret (whsec_…) is the signing secret of the webhook endpoint. ""
	// disables webhooks.
	WebhookSecret string

	// Transport sends the requests. nil means [NewTransport]. A wrapper must pass the
	// request's context on: the client traces connections through it.
	Transport http.RoundTripper

	// Backoff is the maximum delay before the second attempt; it doubles for the third.
	// 0 means 500 ms. Stripe holds most locks for less.
	Backoff time.Duration
}

// Format hides the secret fields from all verbs.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Config") }

func (c Config) validate() error {
	webhookSecret, found := strings.CutPrefix(c.WebhookSecret, "whsec_")
	switch {
	case !strings.HasPrefix(c.SecretKey, "sk_") && !strings.HasPrefix(c.SecretKey, "rk_"):
		return errors.New("payments: SecretKey must begin with sk_ or rk_")
	case c.WebhookSecret != "" && (!found || webhookSecret == ""):
		return errors.New("payments: WebhookSecret must begin with whsec_")
	case c.Timeout <= 0:
		return errors.New("payments: Timeout must be positive")
	case c.Logger == nil:
		return errors.New("payments: Logger is missing")
	default:
		return nil
	}
}

// KeyMode returns "test", "live" or "unknown", by the prefix of an API key. Only a live
// key moves real money.
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
	config  Config
	intents paymentintent.Client
	refunds refund.Client
	sleep   func(context.Context, time.Duration) error // replaced by tests
}

// Format hides the secrets from all verbs.
func (*Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Client") }

// New returns a client.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Transport == nil {
		cfg.Transport = NewTransport()
	}
	cfg.Backoff = cmp.Or(cfg.Backoff, 500*time.Millisecond)
	httpClient := &http.Client{
		Transport: transport{cfg.Transport},
		// A redirect target must not receive the API key.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// No Timeout: each attempt's context has a deadline.
	}
	backend := &stripe.BackendConfig{
		URL:               optional(cfg.BaseURL),
		HTTPClient:        httpClient,
		MaxNetworkRetries: stripe.Int64(0),                                // R13
		EnableTelemetry:   stripe.Bool(false),                             // nil would read a global
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // it logs whole responses; logAttempt logs each attempt
	}
	api := stripe.GetBackendWithConfig(stripe.APIBackend, backend)
	return &Client{
		config:  cfg,
		intents: paymentintent.Client{B: api, Key: cfg.SecretKey},
		refunds: refund.Client{B: api, Key: cfg.SecretKey},
		sleep:   sleep,
	}, nil
}

// Close closes idle connections. The client remains usable.
func (c *Client) Close() { (&http.Client{Transport: c.config.Transport}).CloseIdleConnections() }

// NewTransport returns the default transport of a [Client]. It ignores proxy
// environment variables.
func NewTransport() *http.Transport {
	return &http.Transport{
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
			if response.StatusCode != http.StatusOK {
				return forwardProxyError(response.StatusCode)
			}
			return nil
		},
		// A longer dial timeout would leave no time for a retry.
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost:    1000, // all requests go to one host, hundreds at once if it is slow
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}
