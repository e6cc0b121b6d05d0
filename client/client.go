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

	Timeout             time.Duration     // of one attempt; 0 means 90 s, because a request runs for up to 75 s; add the limit of a [Wait]
	Backoff, MaxBackoff time.Duration     // the jitter's limit doubles from Backoff to MaxBackoff; 0 means 500 ms and 30 s
	Observe             func(Attempt)     // called after each attempt; may be nil
	Transport           http.RoundTripper // nil means a default
}

// Format implements [fmt.Formatter], so that no verb prints the API key.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client.Config") }

func (c Config) validate() error {
	var errs []error
	if u, err := url.Parse(c.BaseURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, errors.New("client: BaseURL must be an http or https URL"))
	}
	switch {
	case c.APIKey == "":
		errs = append(errs, errors.New("client: APIKey is missing"))
	case strings.ContainsFunc(c.APIKey, func(r rune) bool { return r < '!' || r > '~' }): // each attempt would fail, and retries would not end
		errs = append(errs, errors.New("client: APIKey must have only visible ASCII characters"))
	}
	return errors.Join(errs...)
}

// Client sends requests to the API. It is safe for concurrent use.
type Client struct {
	config Config
	http   *http.Client

	sleep  func(ctx context.Context, wait time.Duration) error // tests replace this and the next field
	random func(limit time.Duration) time.Duration
}

// Format implements [fmt.Formatter], so that no verb prints the API key.
func (*Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client.Client") }

// New returns a Client.
func New(config Config) (*Client, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.BaseURL = strings.TrimSuffix(config.BaseURL, "/")
	config.Timeout = cmp.Or(config.Timeout, 90*time.Second)
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
			IdleConnTimeout:     time.Minute, // less than the API's two minutes, so that the client closes idle connections first
			ForceAttemptHTTP2:   true,
		}
	}
	return &Client{
		config: config,
		http: &http.Client{
			Transport: config.Transport,
			// A redirect is not followed, because another server must neither receive the API key nor answer
			// for this one (R31, one call, one answer).
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		sleep:  sleep,
		random: func(limit time.Duration) time.Duration { return rand.N(limit + 1) }, //nolint:gosec // not a secret
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
