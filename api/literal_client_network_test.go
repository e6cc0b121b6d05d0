package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/iotest"

	"example.com/orders-api/payments/stripetest"
)

type networkFault string

const (
	noFault      networkFault = "nothing"
	lostRequest  networkFault = "request lost"
	cutRequest   networkFault = "request cut"
	lostResponse networkFault = "response lost"
	cutResponse  networkFault = "response cut"
	proxyError   networkFault = "502 of a proxy, forwarded"
	duplicated   networkFault = "sent three times at once"
)

var networkFaults = []networkFault{noFault, lostRequest, cutRequest, lostResponse, cutResponse, proxyError, duplicated}

// faultProxy is the network between client and API. It does not cancel a forwarded
// request.
type faultProxy struct {
	fixture   *fixture
	url       string
	transport http.RoundTripper // without the checks of the contract
	inFlight  sync.WaitGroup
	counts    map[networkFault]int

	mu     sync.Mutex
	script []networkFault        // of the requests to come; then all is fine
	held   *stripetest.Injection // nil: the provider holds nothing
	errs   []error
}

func newFaultProxy(t *testing.T, f *fixture) *faultProxy {
	t.Helper()
	transport := &http.Transport{}
	p := &faultProxy{fixture: f, transport: transport, counts: map[networkFault]int{}}
	server := httptest.NewServer(p)
	p.url = server.URL
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return p
}

// send is what the client does: nothing checks what the network made of the response.
func (p *faultProxy) send(r *http.Request) (response, error) {
	received, err := p.transport.RoundTrip(r)
	if err != nil {
		return response{}, err
	}
	return readResponse(received)
}

func (p *faultProxy) plan(script []networkFault, hold *stripetest.Injection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script, p.held = script, hold
}

func (p *faultProxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
}

func (p *faultProxy) waitIdle() error {
	p.inFlight.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

func (p *faultProxy) next() (networkFault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var hangUp <-chan struct{}
	if p.held != nil {
		hangUp = p.held.Reached()
	}
	fault := noFault
	if len(p.script) > 0 {
		fault, p.script = p.script[0], p.script[1:]
	}
	p.counts[fault]++
	return fault, hangUp
}

func (p *faultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault, hangUp := p.next()
	switch fault {
	case lostRequest:
		panic(http.ErrAbortHandler)
	case cutRequest:
		p.forwardHalf(r, body)
		panic(http.ErrAbortHandler)
	case duplicated:
		p.forward(r, body)
		p.forward(r, body)
	}
	var got response
	select {
	case got = <-p.forward(r, body):
	case <-hangUp:
		panic(http.ErrAbortHandler)
	}
	switch fault {
	case lostResponse:
		panic(http.ErrAbortHandler)
	case proxyError:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html><h1>502 Bad Gateway</h1></html>")
	case cutResponse:
		deliver(w, got, len(got.body)/2)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		deliver(w, got, len(got.body))
	}
}

func (p *faultProxy) forward(r *http.Request, body []byte) <-chan response {
	arrived := make(chan response, 1)
	p.inFlight.Go(func() {
		out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.fixture.url+r.URL.Path, bytes.NewReader(body))
		if err == nil {
			out.Header = r.Header.Clone()
			var got response
			if got, err = p.fixture.do(out); err == nil {
				arrived <- got
				return
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, err)
		close(arrived)
	})
	return arrived
}

func (p *faultProxy) forwardHalf(r *http.Request, body []byte) {
	half := io.MultiReader(bytes.NewReader(body[:len(body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF))
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.fixture.url+r.URL.Path, half)
	if err != nil {
		panic(err)
	}
	out.Header, out.ContentLength = r.Header.Clone(), int64(len(body))
	resp, err := p.transport.RoundTrip(out)
	if err == nil {
		_ = resp.Body.Close()
	}
}

func deliver(w http.ResponseWriter, got response, bytes int) {
	for name, values := range got.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(got.body)))
	w.WriteHeader(got.status)
	_, _ = w.Write(got.body[:bytes])
}
