package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
	"github.com/stripe/stripe-go/v79/refund"
)

// Config is what a Client needs.
type Config struct {
	SecretKey string        // sk_test_…, rk_test_…, sk_live_… or rk_live_…
	BaseURL   string        // "" means Stripe's own
	Timeout   time.Duration // bounds one call, or one page of List, resends included
	Logger    *slog.Logger

	// Observe, when not nil, hears of each send, for metrics. Calls wait for it.
	Observe func(Attempt)

	// WebhookSecret is whsec_…, the webhook endpoint's signing secret; "" means
	// that there is none (see [Client.Event]). While it is rolled, Stripe signs
	// with the old and the new one for as long as it was asked to.
	WebhookSecret string

	// Transport carries the requests; nil means one of [NewTransport]. A seam for
	// proxies, tracing and tests. What is put around another transport must hand
	// on the request's context: what really was sent is seen through it.
	Transport http.RoundTripper
	// Backoff is the longest pause before the first resend; it doubles for the
	// next. 0 means 500 ms: Stripe's locks are mostly held for less.
	Backoff time.Duration
}

// Format prints no field, whatever the verb: some are secret.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Config") }

func (c Config) validate() error {
	var faults []error
	if c.SecretKey == "" {
		faults = append(faults, errors.New("payments: SecretKey is missing"))
	} else if !strings.HasPrefix(c.SecretKey, "sk_") && !strings.HasPrefix(c.SecretKey, "rk_") {
		faults = append(faults, errors.New("payments: SecretKey must begin with sk_ or rk_"))
	}
	if rest, found := strings.CutPrefix(c.WebhookSecret, "whsec_"); c.WebhookSecret != "" && (!found || rest == "") {
		faults = append(faults, errors.New("payments: WebhookSecret must begin with whsec_"))
	}
	if u, err := url.Parse(c.BaseURL); c.BaseURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		faults = append(faults, errors.New("payments: BaseURL must be an http or https URL"))
	}
	if c.Timeout <= 0 {
		faults = append(faults, errors.New("payments: Timeout must be positive"))
	}
	if c.Backoff < 0 {
		faults = append(faults, errors.New("payments: Backoff must not be negative"))
	}
	if c.Logger == nil {
		faults = append(faults, errors.New("payments: Logger is missing"))
	}
	return errors.Join(faults...)
}

// IsLiveKey says whether an API key moves real money.
func IsLiveKey(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}

// Client talks to Stripe. It is safe for concurrent use.
type Client struct {
	api     paymentintent.Client
	refunds refund.Client
	http    *http.Client
	logger  *slog.Logger
	observe func(Attempt)
	timeout time.Duration
	backoff time.Duration
	pause   func(context.Context, time.Duration) error

	webhookSecret string
}

// Format prints no field, whatever the verb: some are secret.
func (*Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "payments.Client") }

// New returns a Client, or an error that names everything wrong with cfg.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Transport == nil {
		cfg.Transport = NewTransport()
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 500 * time.Millisecond
	}
	httpClient := &http.Client{
		Transport: transport{cfg.Transport},
		// Stripe does not redirect; following one would carry the key away.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// No Timeout: each send has a deadline in its context.
	}
	backend := &stripe.BackendConfig{
		HTTPClient:        httpClient,
		MaxNetworkRetries: stripe.Int64(0),    // R13
		EnableTelemetry:   stripe.Bool(false), // nil would read a global
		LeveledLogger:     libraryLog{cfg.Logger},
	}
	if cfg.BaseURL != "" {
		backend.URL = stripe.String(cfg.BaseURL)
	}
	stripeAPI := stripe.GetBackendWithConfig(stripe.APIBackend, backend)
	return &Client{
		api:     paymentintent.Client{B: stripeAPI, Key: cfg.SecretKey},
		refunds: refund.Client{B: stripeAPI, Key: cfg.SecretKey},
		http:    httpClient,
		logger:  cfg.Logger,
		observe: cfg.Observe,
		timeout: cfg.Timeout,
		backoff: cfg.Backoff,
		pause:   pause,

		webhookSecret: cfg.WebhookSecret,
	}, nil
}

// Close closes idle connections. The Client stays usable.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// CreateParams describe a PaymentIntent. Under one key they must never change,
// or Stripe refuses the key (R4, R5).
type CreateParams struct {
	Amount        int64  // in the currency's smallest unit
	Currency      string // lower case
	PaymentMethod string
	Description   string // seen by the customer
	// Metadata comes back unchanged. Stripe drops empty values, which then reads
	// as somebody else's intent.
	Metadata map[string]string
}

// Create makes a PaymentIntent without confirming it: no money moves. The
// answer is checked to be the intent asked for, else the error is Unknown with
// NeedsOperator.
func (c *Client) Create(ctx context.Context, key string, p CreateParams) (Intent, error) {
	if err := checkKey(key); err != nil {
		return Intent{}, err
	}
	return c.intent(ctx, call{
		name: "create",
		key:  key,
		ours: func(i Intent) bool {
			return i.Amount == p.Amount && i.Currency == p.Currency && maps.Equal(i.Metadata, p.Metadata)
		},
	}, func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.api.New(&stripe.PaymentIntentParams{
			Params:        params,
			Amount:        stripe.Int64(p.Amount),
			Currency:      stripe.String(p.Currency),
			PaymentMethod: stripe.String(p.PaymentMethod),
			Description:   optional(p.Description),
			Metadata:      p.Metadata,
			// Without these a confirm asks for a return_url: dashboard methods
			// are on by default since API version 2023-08-16.
			AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
				Enabled:        stripe.Bool(true),
				AllowRedirects: stripe.String("never"),
			},
		})
	})
}

// Confirm charges the intent, at most once in its life. The customer is not
// there to authenticate, so a card that asks for it is Declined. On Unknown:
// Get.
func (c *Client) Confirm(ctx context.Context, key, intentID string) (Intent, error) {
	if err := cmp.Or(checkKey(key), checkID(intentID)); err != nil {
		return Intent{}, err
	}
	return c.intent(ctx, callOn("confirm", key, intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.api.Confirm(intentID, &stripe.PaymentIntentConfirmParams{
			Params:     params,
			OffSession: stripe.Bool(true),
		})
	})
}

// Get reads the intent as it is now. It has no effect: Unknown and NotExecuted both
// mean that nothing was learnt.
func (c *Client) Get(ctx context.Context, intentID string) (Intent, error) {
	if err := checkID(intentID); err != nil {
		return Intent{}, err
	}
	return c.intent(ctx, callOn("get", "", intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.api.Get(intentID, &stripe.PaymentIntentParams{Params: params})
	})
}

// Cancel makes sure that the intent can never be charged (R23). It fails with
// UnexpectedState when it is cancelled already or charged.
func (c *Client) Cancel(ctx context.Context, key, intentID string) (Intent, error) {
	if err := cmp.Or(checkKey(key), checkID(intentID)); err != nil {
		return Intent{}, err
	}
	return c.intent(ctx, callOn("cancel", key, intentID), func(params stripe.Params) (*stripe.PaymentIntent, error) {
		return c.api.Cancel(intentID, &stripe.PaymentIntentCancelParams{Params: params})
	})
}

// intent runs one call that answers with a PaymentIntent.
func (c *Client) intent(ctx context.Context, call call, send func(stripe.Params) (*stripe.PaymentIntent, error)) (Intent, error) {
	return ask(ctx, c, call, send, newIntent, call.ours)
}

// ask runs one call that answers with one object: read takes over what came, and
// ours says whether it is the object that was asked for.
func ask[S, T any](ctx context.Context, c *Client, call call, send func(stripe.Params) (S, error), read func(S) (T, error), ours func(T) bool) (T, error) {
	var answer, nothing T
	err := c.run(ctx, call, func(ctx context.Context) error {
		params := stripe.Params{Context: ctx}
		if call.key != "" {
			params.IdempotencyKey = stripe.String(call.key)
		}
		sent, err := send(params)
		if err != nil {
			return err
		}
		if answer, err = read(sent); err != nil {
			return err
		}
		if !ours(answer) {
			return ErrMismatch
		}
		return nil
	})
	if err != nil {
		return nothing, err
	}
	return answer, nil
}

// checkKey refuses what stripe-go would replace by a key of its own making,
// trim, or not send. 255 is Stripe's limit.
func checkKey(key string) error {
	if key == "" || len(key) > 255 {
		return invalidCall("idempotency key of %d bytes", len(key))
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return invalidCall("idempotency key with byte %#02x", c)
		}
	}
	return nil
}

// checkID keeps other ids, and the collection's own URL, out of the path.
func checkID(id string) error {
	if !strings.HasPrefix(id, "pi_") {
		return invalidCall("not the id of a PaymentIntent")
	}
	return nil
}

// checkRefundID does the same for refunds. Old ones begin with re_, those that
// are not of cards with pyr_.
func checkRefundID(id string) error {
	if !strings.HasPrefix(id, "re_") && !strings.HasPrefix(id, "pyr_") {
		return invalidCall("not the id of a refund")
	}
	return nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
