// Package livecheck compares the fake with Stripe. Each check in checks_test.go
// is a sequence of requests with the responses that Stripe documents; a note states
// what Stripe does not document.
//
// go test runs the checks against the fake. make -C lab stripe-check runs them against
// Stripe's test mode with STRIPE_SECRET_KEY, after a report on what the account and the key allow, or
// lists them without a key. They have never been run against Stripe itself, so make -C lab
// stripe-rehearsal runs the same against the fake with Stripe's latency and limit.
package livecheck

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"go.uber.org/goleak"

	"example.com/orders-api/payments/stripetest"
)

const testKey = "sk_test_fake"

// TestMain compares with Stripe instead of testing if the flag -stripe is set.
func TestMain(m *testing.M) {
	withStripe := flag.Bool("stripe", false, "run the checks against Stripe, with STRIPE_SECRET_KEY")
	rehearsal := flag.Bool("rehearse", false, "run them against the fake, with the latency and the limit of Stripe")
	flag.Parse()
	if !*withStripe && !*rehearsal {
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *rehearsal {
		os.Exit(rehearse(ctx, os.Stdout))
	}
	os.Exit(comparison{
		key:  os.Getenv("STRIPE_SECRET_KEY"),
		url:  os.Getenv("STRIPE_API_BASE"),
		pace: 100 * time.Millisecond,
		out:  os.Stdout,
	}.run(ctx, checks()))
}

// newFake returns a fake whose search has no delay, so that the check need not wait.
func newFake() *stripetest.Server {
	return stripetest.New(stripetest.Options{SearchDelay: -1})
}

func compare(t *testing.T, handler http.Handler) (status int, report string) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	var out bytes.Buffer
	status = comparison{key: testKey, url: server.URL, pace: time.Millisecond, out: &out}.run(t.Context(), checks())
	require.NotContains(t, out.String(), "_secret_")
	require.NotContains(t, out.String(), testKey)
	return status, out.String()
}

func TestFake(t *testing.T) {
	t.Parallel()
	status, report := compare(t, newFake())
	require.Equal(t, exitSame, status, report)
	require.Contains(t, report, fmt.Sprintf("0 of %d checks differ.", len(checks())))
	for _, check := range checks() {
		require.Contains(t, report, "same     "+check.name+"\n")
	}
}

// Each of these fakes has one error, which the checks find.
func TestFake_withError(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		wrap  func(*stripetest.Server) http.Handler
		finds []string
	}{
		"executes each key again": {
			wrap: func(s *stripetest.Server) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Header.Del("Idempotency-Key")
					s.ServeHTTP(w, r)
				})
			},
			finds: []string{
				"DIFFERS  replay a create and a confirm",
				"request 2 of 5, create pm_card_visa",
				"expected  200 | Idempotent-Replayed: true, Stripe-Should-Retry: false | requires_confirmation, payment method\n",
				"returned  200 | Stripe-Should-Retry: false | requires_confirmation, another intent, payment method\n",
				"Stripe does not document whether a replay has the header Stripe-Should-Retry.",
			},
		},
		"another status": {
			wrap:  rewriting(`"status": "requires_action"`, `"status": "processing"`),
			finds: []string{"DIFFERS  a challenge can be cancelled", "processing, payment method, use_stripe_sdk"},
		},
		"another decline code": {
			wrap:  rewriting("stolen_card", "lost_card"),
			finds: []string{"DIFFERS  decline pm_card_visa_chargeDeclinedStolenCard", "1 of "},
		},
		"a secret in a code": {
			wrap:  rewriting(`"insufficient_funds"`, `"pi_1_secret_x `+testKey+`"`),
			finds: []string{"DIFFERS  replay a decline", "402 card_error card_declined [secret] [secret]"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, report := compare(t, test.wrap(newFake()))
			require.Equal(t, exitDifferent, status)
			for _, line := range test.finds {
				require.Contains(t, report, line)
			}
		})
	}
}

func rewriting(before, after string) func(*stripetest.Server) http.Handler {
	return func(s *stripetest.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recorder := httptest.NewRecorder()
			s.ServeHTTP(recorder, r)
			body := strings.ReplaceAll(recorder.Body.String(), before, after)
			for name := range recorder.Header() {
				w.Header().Set(name, recorder.Header().Get(name))
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			w.WriteHeader(recorder.Code)
			_, _ = w.Write([]byte(body))
		})
	}
}

func TestFake_rateLimit(t *testing.T) {
	t.Parallel()
	s := newFake()
	s.Inject(stripetest.Rule{Fault: stripetest.RateLimit, Times: 3})
	s.Inject(stripetest.Rule{Fault: stripetest.RateLimit, Endpoint: "POST /v1/payment_intents", After: 3, Times: 3})
	s.Inject(stripetest.Rule{Fault: stripetest.LockTimeout, Endpoint: "POST /v1/payment_intents", After: 8})
	status, report := compare(t, s)
	require.Equal(t, exitSame, status, report)
}

func TestComparison_stopped(t *testing.T) {
	t.Parallel()
	for fault, want := range map[stripetest.Fault]string{
		stripetest.Forbidden:   "the key has not all permissions (403)",
		stripetest.Unavailable: "no response that Stripe would send.",
		stripetest.CloseBefore: "no response that Stripe would send.",
		stripetest.RateLimit:   "still 429 invalid_request_error rate_limit.",
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			s := newFake()
			s.Inject(stripetest.Rule{Fault: fault, Endpoint: "POST /v1/payment_intents", After: 1, Times: stripetest.Always}) // the report asks first
			status, report := compare(t, s)
			require.Equal(t, exitNotCompared, status)
			require.Contains(t, report, `Stopped at "create an intent without confirming it": `+want)
		})
	}
}

// Without a test key, no request is sent.
func TestComparison_key(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		want   string
	}{
		"":                {exitSame, "With a test key (sk_test_… or rk_test_…)"},
		"sk_live_canary":  {exitNotCompared, "STRIPE_SECRET_KEY is a live key, which moves money."},
		"rk_live_canary":  {exitNotCompared, "STRIPE_SECRET_KEY is a live key, which moves money."},
		"sk_org_canary":   {exitNotCompared, "STRIPE_SECRET_KEY must begin with sk_test_ or rk_test_."},
		" sk_live_canary": {exitNotCompared, "STRIPE_SECRET_KEY must begin with sk_test_ or rk_test_."},
	}
	for key, test := range tests {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			s := newFake()
			server := httptest.NewServer(s)
			defer server.Close()
			var out bytes.Buffer
			status := comparison{key: key, url: server.URL, pace: 100 * time.Millisecond, out: &out}.run(t.Context(), checks())
			require.Equal(t, test.status, status)
			require.Contains(t, out.String(), test.want)
			require.NotContains(t, out.String(), "canary")
			require.Empty(t, s.Requests())
			for _, check := range checks() {
				require.Equal(t, key == "", strings.Contains(out.String(), fmt.Sprintf("%d  %s\n", len(check.steps), check.name)))
			}
		})
	}
}

// Exit statuses of a comparison.
const (
	exitSame = iota
	exitDifferent
	exitNotCompared
)

type comparison struct {
	key  string // the provider's secret key
	url  string // empty: Stripe
	pace time.Duration
	out  io.Writer
}

// run prints a report and returns the exit status. Without a key it only lists the
// checks.
func (c comparison) run(ctx context.Context, table []check) int {
	requests := 0
	for _, check := range table {
		requests += len(check.steps)
	}
	switch {
	case c.key == "":
		c.printf("STRIPE_SECRET_KEY is not set, so nothing is sent. With a test key (sk_test_… or rk_test_…), in the\n"+
			"environment or in .env, %d checks with %d requests run in Stripe's test mode, at most %.0f a\n"+
			"second. They leave payment intents and refunds there, and move no money. Live keys are rejected.\n\n"+
			"requests  check\n",
			len(table), requests, float64(time.Second)/float64(c.pace))
		for _, check := range table {
			c.printf("%8d  %s\n", len(check.steps), check.name)
		}
		return exitSame
	case strings.HasPrefix(c.key, "sk_live_") || strings.HasPrefix(c.key, "rk_live_"):
		c.printf("STRIPE_SECRET_KEY is a live key, which moves money. Nothing was sent. Use a test key (sk_test_… or rk_test_…).\n")
		return exitNotCompared
	case !strings.HasPrefix(c.key, "sk_test_") && !strings.HasPrefix(c.key, "rk_test_"):
		c.printf("STRIPE_SECRET_KEY must begin with sk_test_ or rk_test_. Nothing was sent.\n")
		return exitNotCompared
	}

	client, stop := c.client()
	defer stop()
	if !c.report(ctx, client) {
		c.printf("Nothing was created, and nothing compared.\n")
		return exitNotCompared
	}
	intents, refunds := creations(table)
	c.printf("%d checks follow, with %d requests. They create %d payment intents of $20.00 and %d refunds in test mode,\n"+
		"which moves no money. All of them have the metadata order_id or refund_id stripe-check.\n\n",
		len(table), requests, intents, refunds)
	backend := c.backend(client)
	differences := 0
	for _, check := range table {
		difference, err := check.run(newSession(ctx, backend, c.key, "stripe-check-"+rand.Text()), 10*c.pace)
		switch {
		case err != nil:
			c.printf("\nStopped at %q: %v.\n", check.name, err)
			return exitNotCompared
		case difference != "":
			differences++
			c.printf("DIFFERS  %s\n%s", check.name, difference)
		default:
			c.printf("same     %s\n", check.name)
		}
	}
	c.printf("\n%d of %d checks differ.\n", differences, len(table))
	if differences > 0 {
		return exitDifferent
	}
	return exitSame
}

// run returns the first difference. Later steps depend on it, so they are not sent.
func (c check) run(s *session, backoff time.Duration) (difference string, err error) {
	for i, step := range c.steps {
		got, err := step.call.sendWithRetry(s, backoff)
		if err != nil {
			return "", err
		}
		if got == step.want {
			continue
		}
		text := fmt.Sprintf("         request %d of %d, %s\n           expected  %v\n           returned  %v\n",
			i+1, len(c.steps), step.call.name, step.want, got)
		if c.note != "" {
			text += "           Stripe does not document " + c.note + ".\n"
		}
		return text, nil
	}
	return "", nil
}

// sendWithRetry repeats a request after a 429, which had no effect.
func (c call) sendWithRetry(s *session, backoff time.Duration) (got outcome, err error) {
	for range 5 {
		got, err = c.send(s)
		if err != nil || !strings.HasPrefix(got.response, "429 ") {
			return got, err
		}
		select {
		case <-time.After(backoff):
		case <-s.ctx.Done():
			return got, s.ctx.Err()
		}
	}
	return got, fmt.Errorf("still %s", got.response)
}

// client returns an HTTP client for all requests, which keeps the pace.
func (c comparison) client() (client *http.Client, stop func()) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	ticker := time.NewTicker(c.pace)
	return &http.Client{Timeout: time.Minute, Transport: paced{transport, ticker.C}}, func() {
		ticker.Stop()
		transport.CloseIdleConnections()
	}
}

func (c comparison) backend(client *http.Client) stripe.Backend {
	config := &stripe.BackendConfig{
		HTTPClient:        client,
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // it logs whole responses
	}
	if c.url != "" {
		config.URL = stripe.String(c.url)
	}
	return stripe.GetBackendWithConfig(stripe.APIBackend, config)
}

// paced stays below test mode's limit of 25 requests a second.
type paced struct {
	base http.RoundTripper
	tick <-chan time.Time
}

func (p paced) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-p.tick:
		return p.base.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

var secret = regexp.MustCompile(`\w+_secret_\w+|\b[srp]k_(test|live)_\w+`)

// printf removes secrets, because a proxy can put any text into an error's code.
func (c comparison) printf(format string, args ...any) {
	_, _ = io.WriteString(c.out, secret.ReplaceAllString(fmt.Sprintf(format, args...), "[secret]"))
}
