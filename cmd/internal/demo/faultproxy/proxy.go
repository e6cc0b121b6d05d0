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

// stripeURL is the address of Stripe's API.
const stripeURL = "https://api.stripe.com"

// Options configure a [Proxy]. The zero value forwards to Stripe.
type Options struct {
	Provider string        // URL of the provider; "" is Stripe's own
	Latency  time.Duration // added to each call

	// OnCall, if set, is called synchronously when a call arrives and when it ends.
	OnCall func(Call)
}

// Call is one call of the API to the provider.
type Call struct {
	Number       int // from 1, in the order of arrival
	Method, Path string
	ArrivedAt    time.Time
	Duration     time.Duration // until the provider's response began; 0 while the call is in progress
	Status       int           // the provider's; 0 while in progress and if the provider was not reached
	Dropped      bool          // the API got no response
}

// Confirms reports whether the call charges a payment.
func (c Call) Confirms() bool {
	return c.Method == http.MethodPost && strings.HasSuffix(c.Path, "/confirm")
}

// Proxy forwards calls to the provider.
type Proxy struct {
	options Options
	url     string
	server  *http.Server
	reverse *httputil.ReverseProxy

	mu    sync.Mutex
	calls int
	fault *fault // nil: calls are forwarded
}

type fault struct {
	dropped chan int // gets the status of the dropped response
	down    bool     // the confirm was seen
}

// New starts a proxy on a loopback address. It listens when New returns.
func New(ctx context.Context, options Options) (*Proxy, error) {
	if options.Provider == "" {
		options.Provider = stripeURL
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
		options: options,
		url:     "http://" + listener.Addr().String(),
		reverse: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true},
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
				panic(http.ErrAbortHandler) // a broken connection, not a response
			},
			ErrorLog: discard,
		},
	}
	p.server = &http.Server{Handler: hostcheck.Handler(listener.Addr().String(), p), ReadHeaderTimeout: 5 * time.Second, ErrorLog: discard}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

// URL is the address at which the API reaches the provider.
func (p *Proxy) URL() string { return p.url }

// Close stops the proxy and ends the calls in progress.
func (p *Proxy) Close() error { return p.server.Close() }

// DropResponseAfterConfirm forwards the next confirm, drops its response, and
// forwards nothing more until [Proxy.Restore]. The channel gets the status of the
// dropped response.
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

// ServeHTTP forwards a call, unless a fault drops it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.calls++
	call := Call{Number: p.calls, Method: r.Method, Path: r.URL.Path, ArrivedAt: time.Now(), Dropped: true}
	fault := p.fault
	down := fault != nil && fault.down
	dropResponse := fault != nil && !down && call.Confirms()
	if dropResponse {
		fault.down = true
	}
	p.mu.Unlock()

	p.options.OnCall(call)
	recorder := &statusRecorder{ResponseWriter: w}
	defer func() { // on a panic too, which closes the connection
		if recorder.status == 0 {
			recorder.at = time.Now()
		}
		call.Duration, call.Status = recorder.at.Sub(call.ArrivedAt), recorder.status
		p.options.OnCall(call)
	}()
	switch {
	case down:
		panic(http.ErrAbortHandler) // closes the connection without a response
	case dropResponse:
		// The provider must get this request even if the API is killed.
		r = r.WithContext(context.WithoutCancel(r.Context()))
		recorder.ResponseWriter = discardWriter{http.Header{}}
		p.forward(recorder, r)
		fault.dropped <- recorder.status
		panic(http.ErrAbortHandler)
	default:
		p.forward(recorder, r)
		call.Dropped = false
	}
}

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	if p.options.Latency > 0 {
		select {
		case <-time.After(p.options.Latency):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	p.reverse.ServeHTTP(w, r)
}

type statusRecorder struct {
	http.ResponseWriter
	status int
	at     time.Time
}

// Unwrap lets the reverse proxy flush.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusRecorder) WriteHeader(status int) {
	s.status, s.at = status, time.Now()
	s.ResponseWriter.WriteHeader(status)
}

type discardWriter struct{ header http.Header }

func (d discardWriter) Header() http.Header         { return d.header }
func (d discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (d discardWriter) WriteHeader(int)             {}
