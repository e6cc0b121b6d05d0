package payments

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
	"github.com/stripe/stripe-go/v79/refund"
)

// Config configures a [Client].
type Config struct {
	SecretKey string        // sk_… or rk_…
	BaseURL   string        // "" means Stripe's own
	Timeout   time.Duration // of a call or a page, retries included
	Logger    *slog.Logger

	Observe func(Attempt) // may be nil

	WebhookSecret string // whsec_…; "" disables webhooks

	// Transport is by default [NewTransport]. A wrapper must pass on the context.
	Transport http.RoundTripper

	// Backoff is the maximum delay before the second attempt, by default 500 ms, because Stripe
	// holds most locks for less.
	Backoff time.Duration
}

// Format hides the secrets.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Config") }

func (c Config) validate() error {
	webhookSecret, found := strings.CutPrefix(c.WebhookSecret, "whsec_")
	switch {
	case !strings.HasPrefix(c.SecretKey, "sk_") && !strings.HasPrefix(c.SecretKey, "rk_"):
		return errors.New("payments: SecretKey must begin with sk_ or rk_")
	case c.WebhookSecret != "" && (!found || webhookSecret == ""):
		return errors.New("payments: WebhookSecret must begin with whsec_")
	default:
		return nil
	}
}

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
	config  Config
	intents paymentintent.Client
	refunds refund.Client
}

// Format hides the secrets.
func (*Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Client") }

// New returns a Client.
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
	}
	backend := &stripe.BackendConfig{
		URL:               optional(cfg.BaseURL),
		HTTPClient:        httpClient,
		MaxNetworkRetries: stripe.Int64(0), // only do repeats a request (R13)
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // it would log whole responses
	}
	api := stripe.GetBackendWithConfig(stripe.APIBackend, backend)
	return &Client{
		config:  cfg,
		intents: paymentintent.Client{B: api, Key: cfg.SecretKey},
		refunds: refund.Client{B: api, Key: cfg.SecretKey},
	}, nil
}

// Close closes idle connections. The client remains usable.
func (c *Client) Close() { (&http.Client{Transport: c.config.Transport}).CloseIdleConnections() }
