package faultproxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"example.com/orders-api/cmd/internal/hostcheck"
)

// Options configure a [Proxy].
type Options struct {
	Provider string // URL of the provider; "" is Stripe's own
	Latency  time.Duration

	// OnCall, if set, is called synchronously when a call arrives and when it ends.
	OnCall func(Call)
}

// Call is one call of the API to the provider.
type Call struct {
	Number       int // from 1, in the order of arrival
	Method, Path string
	ArrivedAt    time.Time
	Duration     time.Duration // 0 while the call is in progress
	Status       int           // 0 without a response of the provider
	Dropped      bool          // the API gets no response
}

// Confirms reports whether the call charges a payment.
func (c Call) Confirms() bool {
	return c.Method == http.MethodPost && strings.HasSuffix(c.Path, "/confirm")
}

// Proxy forwards calls to the provider. It is the transport of a reverse proxy.
type Proxy struct {
	options  Options
	url      string
	server   *http.Server
	provider http.RoundTripper

	mu    sync.Mutex
	calls int
	fault *fault
}

type fault struct {
	dropped chan int
	down    bool // the confirm was seen
}

// New starts a proxy on a loopback address.
func New(ctx context.Context, options Options) (*Proxy, error) {
	if options.Provider == "" {
		options.Provider = "https://api.stripe.com"
	}
	if options.OnCall == nil {
		options.OnCall = func(Call) {}
	}
	target, err := url.Parse(options.Provider)
	if err != nil {
		return nil, errors.New("STRIPE_API_BASE is not a URL")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	discard := log.New(io.Discard, "", 0) // net/http would print between the demo's lines
	p := &Proxy{
		options:  options,
		url:      "http://" + listener.Addr().String(),
		provider: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true},
	}
	reverse := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: p,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // a broken connection, not a response
		},
		ErrorLog: discard,
	}
	p.server = &http.Server{Handler: hostcheck.Handler(listener.Addr().String(), reverse), ReadHeaderTimeout: 5 * time.Second, ErrorLog: discard}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

// URL is the address at which the API reaches the provider.
func (p *Proxy) URL() string { return p.url }

// Close stops the proxy and ends the calls in progress.
func (p *Proxy) Close() error { return p.server.Close() }

// DropResponseAfterConfirm forwards the next confirm, drops its response, and forwards
// nothing more until [Proxy.Restore]. The channel gets the status of the response.
func (p *Proxy) DropResponseAfterConfirm() <-chan int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = &fault{dropped: make(chan int, 1)}
	return p.fault.dropped
}

// Restore removes the fault: calls are forwarded again.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = nil
}

var errDropped = errors.New("dropped")

// RoundTrip forwards a call, unless a fault drops it.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.calls++
	call := Call{Number: p.calls, Method: r.Method, Path: r.URL.Path, ArrivedAt: time.Now()}
	fault := p.fault
	call.Dropped = fault != nil && fault.down
	dropsResponse := fault != nil && !fault.down && call.Confirms()
	if dropsResponse {
		fault.down = true
		// The provider must get this request even if the API is killed.
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	p.mu.Unlock()

	p.options.OnCall(call)
	var response *http.Response
	err := errDropped
	if !call.Dropped {
		response, err = p.forward(r)
	}
	if err == nil {
		call.Status = response.StatusCode
	}
	if err == nil && dropsResponse {
		err = errors.Join(errDropped, response.Body.Close())
	}
	call.Duration, call.Dropped = time.Since(call.ArrivedAt), err != nil
	p.options.OnCall(call)
	if dropsResponse {
		fault.dropped <- call.Status
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (p *Proxy) forward(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(p.options.Latency):
		return p.provider.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
