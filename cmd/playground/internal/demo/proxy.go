package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"example.com/orders-api/cmd/playground/internal/devservices"
)

// proxy forwards the calls of the API process to the provider, and records them in the
// current play.
type proxy struct {
	*system
	url      string
	stop     func() error
	provider http.RoundTripper

	mu   sync.Mutex
	lost chan int // gets the status of the lost response; nil unless loseResponse was called
	down bool     // the response is lost, and no further call is forwarded
}

func newProxy(ctx context.Context, s *system) (*proxy, error) {
	target, err := url.Parse(cmp.Or(s.APIBase, "https://api.stripe.com"))
	if err != nil {
		return nil, err
	}
	p := &proxy{
		system:   s,
		provider: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true},
	}
	p.url, p.stop, err = devservices.Serve(ctx, &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: p,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // breaks the connection instead of sending a response
		},
		ErrorLog: log.New(io.Discard, "", 0), // net/http would print between the demo's lines
	})
	return p, err
}

// loseResponse makes the proxy forward the next confirm, lose its response, and forward nothing more
// until restore. The channel gets the status of the lost response.
func (p *proxy) loseResponse() <-chan int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = make(chan int, 1)
	return p.lost
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost, p.down = nil, false
}

var errLost = errors.New("the response is lost")

// RoundTrip forwards a call. It records the state of the order before it returns, so that the timeline
// shows a charge before the transaction that records it.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	text, purpose := meaning(r)
	p.mu.Lock()
	lost, down := p.lost, p.down
	loses := lost != nil && !down && text == confirms
	p.down = down || loses
	p.mu.Unlock()

	e := event{Lane: laneProvider, Text: text, Detail: purpose + " …"}
	if down {
		e.Kind, e.Detail = kindFault, "the connection breaks"
		p.current.Load().record(e)
		return nil, errLost
	}
	id, start, status := p.current.Load().record(e), time.Now(), 0
	response, err := p.forward(r)
	if err == nil {
		status = response.StatusCode
	}
	e.Detail = fmt.Sprintf("%s: %d after %d ms", purpose, status, time.Since(start).Milliseconds())
	if loses {
		e.Detail = fmt.Sprintf("%s: %d, but the connection breaks and the response is lost", purpose, status)
	}
	if loses || err != nil || status >= http.StatusInternalServerError {
		e.Kind = kindFault
	}
	p.current.Load().amend(id, e)
	if loses {
		lost <- status
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errLost
	}
	return response, err
}

func (p *proxy) forward(r *http.Request) (*http.Response, error) {
	if err := wait(r.Context(), p.Latency); err != nil {
		return nil, err
	}
	return p.provider.RoundTrip(r)
}

const confirms = "confirm the intent"

func meaning(r *http.Request) (text, purpose string) {
	path, query := strings.TrimPrefix(r.URL.Path, "/v1/"), r.URL.Query()
	switch {
	case r.Method == http.MethodPost && path == "payment_intents":
		return "create the intent", "no money moves"
	case strings.HasSuffix(path, "/confirm"):
		return confirms, "charge the card"
	case strings.HasSuffix(path, "/cancel"):
		return "cancel the intent", "it can never be charged"
	case path == "payment_intents/search":
		return "search the intent", "find that of an earlier run by its metadata"
	case strings.HasPrefix(path, "payment_intents/"):
		return "read the intent", "learn the outcome"
	case query.Has("payment_intent"):
		return "list the intent’s " + path, "record what has changed"
	default: // at each start
		return "try " + r.Method + " " + path, "does the API key allow it?"
	}
}
