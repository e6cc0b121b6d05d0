package wire

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
)

// stripeURL is where the real provider is.
const stripeURL = "https://api.stripe.com"

// Options say how a wire behaves. The zero value leads to Stripe.
type Options struct {
	Provider string        // URL of the provider; "" is Stripe's own
	Delay    time.Duration // before each call passes, so that people can follow

	// Observe is told of each call when it arrives and when it is over, by the
	// goroutine that carries it, which waits meanwhile. Nil tells nobody.
	Observe func(Call)
}

// Call is a call of the API's to the provider.
type Call struct {
	Number       int // counts the calls of a wire, from 1
	Method, Path string
	At           time.Time     // of its arrival
	Took         time.Duration // 0 while it is under way
	Status       int           // the provider's; 0 while under way and when it was not reached
	Lost         bool          // no answer came through to the API
}

// Wire is a line to the provider.
type Wire struct {
	options Options
	url     string
	server  *http.Server
	proxy   *httputil.ReverseProxy

	mu    sync.Mutex
	calls int
	cut   *cut // nil: nothing is wrong
}

// cut is a break of the wire: the provider gets the next confirm and charges
// the card, and from then on nothing passes until the wire is mended.
type cut struct {
	answered chan int // gets the status of the answer that is lost
	down     bool
}

// New lays a wire and returns when it listens, on an address of this machine.
func New(ctx context.Context, options Options) (*Wire, error) {
	if options.Provider == "" {
		options.Provider = stripeURL
	}
	if options.Observe == nil {
		options.Observe = func(Call) {}
	}
	target, err := url.Parse(options.Provider)
	if err != nil {
		return nil, errors.New("STRIPE_API_BASE is not a URL")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	silent := log.New(io.Discard, "", 0) // of what net/http would print between other lines
	w := &Wire{
		options: options,
		url:     "http://" + listener.Addr().String(),
		proxy: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: &http.Transport{TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true},
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
				panic(http.ErrAbortHandler) // a broken line, not an answer
			},
			ErrorLog: silent,
		},
	}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: 5 * time.Second, ErrorLog: silent}
	go func() { _ = w.server.Serve(listener) }()
	return w, nil
}

// URL is where the API finds the provider.
func (w *Wire) URL() string { return w.url }

// Close ends the wire, and the calls on it.
func (w *Wire) Close() error { return w.server.Close() }

// CutAfterConfirm breaks the wire at the next confirm. When the provider has
// answered that, the channel gets the status, and the API gets nothing.
func (w *Wire) CutAfterConfirm() <-chan int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = &cut{answered: make(chan int, 1)}
	return w.cut.answered
}

// Mend repairs the wire.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = nil
}

// ServeHTTP passes a call on and its answer back, unless the wire is cut.
func (w *Wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.calls++
	call := Call{Number: w.calls, Method: r.Method, Path: r.URL.Path, At: time.Now(), Lost: true}
	cut := w.cut
	down := cut != nil && cut.down
	strike := cut != nil && !down && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/confirm")
	if strike {
		cut.down = true
	}
	w.mu.Unlock()

	w.options.Observe(call)
	answer := &answer{ResponseWriter: rw}
	defer func() { // also when the line breaks, which panics
		call.Took, call.Status = time.Since(call.At), answer.status
		w.options.Observe(call)
	}()
	switch {
	case down:
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case strike:
		// The provider must get this request even if the API is killed meanwhile.
		r = r.WithContext(context.WithoutCancel(r.Context()))
		answer.ResponseWriter = nowhere{http.Header{}}
		w.pass(answer, r)
		cut.answered <- answer.status
		panic(http.ErrAbortHandler)
	default:
		w.pass(answer, r)
		call.Lost = false
	}
}

// pass carries a call there and back.
func (w *Wire) pass(rw http.ResponseWriter, r *http.Request) {
	if w.options.Delay > 0 {
		select {
		case <-time.After(w.options.Delay):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	w.proxy.ServeHTTP(rw, r)
}

// answer remembers the status of what passes through it.
type answer struct {
	http.ResponseWriter
	status int
}

// Unwrap lets the proxy flush.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// nowhere is where a lost answer goes.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}
