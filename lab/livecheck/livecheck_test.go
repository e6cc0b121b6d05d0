// Package livecheck compares the fake with Stripe. Each check in checks_test.go
// is a sequence of requests with the responses that Stripe documents; a note states
// what Stripe does not document.
//
// go test runs the checks against the fake. make -C lab stripe-check runs them against
// Stripe's test mode with STRIPE_SECRET_KEY, or lists them without a key. They have
// never been run against Stripe itself.
package livecheck

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/payments/stripetest"
)

const testKey = "sk_test_fake"

// TestMain compares with Stripe instead of testing if the flag -stripe is set.
func TestMain(m *testing.M) {
	withStripe := flag.Bool("stripe", false, "run the checks against Stripe, with STRIPE_SECRET_KEY")
	flag.Parse()
	if !*withStripe {
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
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
	s.Inject(stripetest.Rule{Fault: stripetest.LockTimeout, After: 2})
	status, report := compare(t, s)
	require.Equal(t, exitSame, status, report)
}

func TestComparison_stopped(t *testing.T) {
	t.Parallel()
	for fault, want := range map[stripetest.Fault]string{
		stripetest.Unauthorized: "the key was rejected (401).",
		stripetest.Unavailable:  "no response that Stripe would send.",
		stripetest.CloseBefore:  "no response that Stripe would send.",
		stripetest.RateLimit:    "still 429 invalid_request_error rate_limit.",
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			s := newFake()
			s.Inject(stripetest.Rule{Fault: fault, Times: stripetest.Always})
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
