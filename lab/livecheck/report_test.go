package livecheck

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

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

	c.printf("Comparing with %s: %d checks, %d requests.\n\n", cmp.Or(c.url, stripe.APIURL), len(table), requests)
	backend, stop := c.backend()
	defer stop()
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

func (c comparison) backend() (backend stripe.Backend, stop func()) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	ticker := time.NewTicker(c.pace)
	config := &stripe.BackendConfig{
		HTTPClient:        &http.Client{Timeout: time.Minute, Transport: paced{transport, ticker.C}},
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // it logs whole responses
	}
	if c.url != "" {
		config.URL = stripe.String(c.url)
	}
	return stripe.GetBackendWithConfig(stripe.APIBackend, config), func() {
		ticker.Stop()
		transport.CloseIdleConnections()
	}
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
