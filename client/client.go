package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config is what a [Client] needs: BaseURL and APIKey. The rest has defaults.
type Config struct {
	BaseURL string // of the API, such as https://orders.example.com
	APIKey  string

	// Timeout bounds one send with its answer. A minute when 0: less than the
	// API may take over an order costs only another send.
	Timeout time.Duration

	// Backoff is the longest random wait before the second send; it doubles for
	// each one after that, up to MaxBackoff. 500 ms and 30 s when 0. What
	// Retry-After asks for comes on top.
	Backoff, MaxBackoff time.Duration

	// PreferWait asks the API, for a POST and for [Client.GetKey], to hold its
	// answer back until a request that is under way under the key is done, for so
	// long at most (Prefer: wait=N, RFC 7240). Whole seconds, less than Timeout; 0
	// does not ask.
	PreferWait time.Duration

	// Observe is told of each exchange when it is over, from the goroutine that
	// made it. For logs and counters; nil tells nobody.
	Observe func(Attempt)

	// Transport carries the requests; nil means a default of our own.
	Transport http.RoundTripper

	// Wait waits, or returns the context's error. Random returns a duration from
	// 0 to limit. Tests that do not want to wait set them; nil means a timer and
	// chance.
	Sleep  func(ctx context.Context, wait time.Duration) error
	Random func(limit time.Duration) time.Duration
}

// Format prints no field, whatever the verb: one is secret.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client.Config") }

func (c Config) validate() error {
	var faults []error
	if u, err := url.Parse(c.BaseURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" {
		faults = append(faults, errors.New("client: BaseURL must be an http or https URL"))
	}
	if c.APIKey == "" {
		faults = append(faults, errors.New("client: APIKey is missing"))
	}
	if c.Timeout < 0 || c.Backoff < 0 || c.MaxBackoff < 0 {
		faults = append(faults, errors.New("client: durations must not be negative"))
	}
	if c.PreferWait < 0 || c.PreferWait%time.Second != 0 || c.PreferWait >= cmp.Or(c.Timeout, defaultTimeout) {
		faults = append(faults, errors.New("client: PreferWait must be whole seconds and less than Timeout"))
	}
	return errors.Join(faults...)
}

const (
	defaultTimeout    = time.Minute
	defaultBackoff    = 500 * time.Millisecond
	defaultMaxBackoff = 30 * time.Second
)

// Client sends requests to the API. It is safe for concurrent use.
type Client struct {
	config Config
	base   string
	http   *http.Client
}

// Format prints no field, whatever the verb: one is secret.
func (*Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client.Client") }

// New returns a Client, or an error that names everything wrong with config.
func New(config Config) (*Client, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	config.Backoff = cmp.Or(config.Backoff, defaultBackoff)
	config.MaxBackoff = cmp.Or(config.MaxBackoff, defaultMaxBackoff)
	if config.Observe == nil {
		config.Observe = func(Attempt) {}
	}
	if config.Transport == nil {
		config.Transport = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: 32,
			IdleConnTimeout:     time.Minute, // less than the API's two
			ForceAttemptHTTP2:   true,
		}
	}
	if config.Sleep == nil {
		config.Sleep = wait
	}
	if config.Random == nil {
		config.Random = func(limit time.Duration) time.Duration {
			return rand.N(limit + 1) //nolint:gosec // jitter needs no secrecy
		}
	}
	return &Client{
		config: config,
		base:   strings.TrimSuffix(config.BaseURL, "/"),
		http: &http.Client{
			Transport: config.Transport,
			// The API does not redirect. Whoever does would get the API key, and
			// may not know the idempotency key.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections. The Client stays usable.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
