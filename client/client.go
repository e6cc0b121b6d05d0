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

// Config configures a [Client]. BaseURL and APIKey are required.
type Config struct {
	BaseURL string // such as https://orders.example.com
	APIKey  string

	Timeout             time.Duration     // of one attempt; 0 means a minute
	Backoff, MaxBackoff time.Duration     // limits of the jitter, which doubles; 0 means 500 ms and 30 s
	Observe             func(Attempt)     // called after each attempt, unless it is nil
	Transport           http.RoundTripper // nil means a default
}

// Format hides the API key from all verbs.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client.Config") }

func (c Config) validate() error {
	var errs []error
	if u, err := url.Parse(c.BaseURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, errors.New("client: BaseURL must be an http or https URL"))
	}
	switch {
	case c.APIKey == "":
		errs = append(errs, errors.New("client: APIKey is missing"))
	case strings.ContainsFunc(c.APIKey, func(r rune) bool { return r < '!' || r > '~' }): // every attempt would fail
		errs = append(errs, errors.New("client: APIKey must have only visible ASCII characters"))
	}
	return errors.Join(errs...)
}

// Client sends requests to the API, also concurrently.
type Client struct {
	config Config
	http   *http.Client

	sleep       func(ctx context.Context, wait time.Duration) error // replaced by tests, like the next two
	random      func(limit time.Duration) time.Duration
	maxResponse int64 // bytes
}

// Format hides the API key from all verbs.
func (*Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client.Client") }

// New returns a Client.
func New(config Config) (*Client, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.BaseURL = strings.TrimSuffix(config.BaseURL, "/")
	config.Timeout = cmp.Or(config.Timeout, time.Minute)
	config.Backoff = cmp.Or(config.Backoff, 500*time.Millisecond)
	config.MaxBackoff = cmp.Or(config.MaxBackoff, 30*time.Second)
	if config.Observe == nil {
		config.Observe = func(Attempt) {}
	}
	if config.Transport == nil {
		config.Transport = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: 32,
			IdleConnTimeout:     time.Minute, // the API's is two minutes
			ForceAttemptHTTP2:   true,
		}
	}
	return &Client{
		config: config,
		http: &http.Client{
			Transport: config.Transport,
			// Another server must not receive the API key, nor answer for this one (R31, one call, one answer).
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		sleep:       sleep,
		random:      func(limit time.Duration) time.Duration { return rand.N(limit + 1) }, //nolint:gosec // not a secret
		maxResponse: maxResponse,
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
