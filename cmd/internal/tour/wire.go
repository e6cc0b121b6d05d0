package tour

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

// wire is the network between the API and the payment provider. It can be cut
// right after a charge.
type wire struct {
	url    string
	server *http.Server
	proxy  *httputil.ReverseProxy

	mu  sync.Mutex
	cut *cut // nil: nothing is wrong
}

// cut is a break of the wire: the provider gets the next confirm and charges
// the card, and from then on nothing passes until the wire is mended.
type cut struct {
	charged chan struct{} // closed when the provider has said yes
	down    bool
}

func newWire(ctx context.Context, provider string) (*wire, error) {
	if provider == "" {
		provider = stripeURL
	}
	target, err := url.Parse(provider)
	if err != nil {
		return nil, errors.New("demo: STRIPE_API_BASE is not a URL")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{
		url: "http://" + listener.Addr().String(),
		proxy: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: &http.Transport{TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true},
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
				panic(http.ErrAbortHandler) // a broken line, not an answer
			},
			ErrorLog: silent(),
		},
	}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: 5 * time.Second, ErrorLog: silent()}
	go func() { _ = w.server.Serve(listener) }()
	return w, nil
}

// silent is for what the standard library would print between the tour's lines.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

func (w *wire) close() error { return w.server.Close() }

// cutAfterCharge breaks the wire at the next confirm. The channel is closed when
// the provider has charged the card and its answer is lost.
func (w *wire) cutAfterCharge() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = &cut{charged: make(chan struct{})}
	return w.cut.charged
}

// mend repairs the wire.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = nil
}

// ServeHTTP passes a request on and its answer back, unless the wire is cut.
func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	cut := w.cut
	down := cut != nil && cut.down
	strike := cut != nil && !down && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/confirm")
	if strike {
		cut.down = true
	}
	w.mu.Unlock()

	switch {
	case down:
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case strike:
		// The provider must get this request even if the API is killed meanwhile.
		lost := &nowhere{header: http.Header{}}
		w.proxy.ServeHTTP(lost, r.WithContext(context.WithoutCancel(r.Context())))
		if lost.status == http.StatusOK {
			close(cut.charged)
		}
		panic(http.ErrAbortHandler)
	default:
		w.proxy.ServeHTTP(rw, r)
	}
}

// nowhere is where a lost answer goes.
type nowhere struct {
	header http.Header
	status int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(status int)      { n.status = status }
