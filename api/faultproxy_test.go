package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"example.com/orders-api/payments/stripetest"
)

// A flaw is what the network between a client and the API does to one request.
type networkFault string

const (
	noFault          networkFault = "nothing"
	lostRequest      networkFault = "lost before it arrives"
	cutRequest       networkFault = "request cut"
	lostResponse     networkFault = "answer lost after it was made"
	cutResponse      networkFault = "answer cut"
	connectionReset  networkFault = "connection reset"
	proxyErrorBefore networkFault = "502 of a proxy that did not pass it on"
	proxyErrorAfter  networkFault = "502 of a proxy that did"
	duplicated       networkFault = "sent three times at once"
)

var networkFaults = []networkFault{noFault, lostRequest, cutRequest, lostResponse, cutResponse, connectionReset, proxyErrorBefore, proxyErrorAfter, duplicated}

// flaky is a network between a client and the API. What it has passed on goes
// its way, whether the client stays or not.
type faultProxy struct {
	app      *fixture
	url      string
	inFlight sync.WaitGroup // requests under way
	counts   map[networkFault]int

	mu     sync.Mutex
	script []networkFault        // of the requests to come; then all is fine
	held   *stripetest.Injection // nil: the provider holds nothing
	errs   []error               // answers that break the contract
}

func newFaultProxy(t *testing.T, f *fixture) *faultProxy {
	t.Helper()
	p := &faultProxy{app: f, counts: map[networkFault]int{}}
	server := httptest.NewServer(p)
	p.url = server.URL
	t.Cleanup(server.Close)
	return p
}

// plan says what happens to the requests to come, and which of the provider's
// faults the client does not wait for.
func (p *faultProxy) plan(script []networkFault, hold *stripetest.Injection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script, p.held = script, hold
}

// release lets go on what the provider holds.
func (p *faultProxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
}

// settle waits until nothing is under way, and returns what broke the contract.
func (p *faultProxy) waitIdle() error {
	p.inFlight.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

// next returns the flaw of a request, and a channel that tells its client to
// hang up.
func (p *faultProxy) next() (networkFault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var hangUp <-chan struct{}
	if p.held != nil {
		hangUp = p.held.Reached()
	}
	flaw := noFault
	if len(p.script) > 0 {
		flaw, p.script = p.script[0], p.script[1:]
	}
	p.counts[flaw]++
	return flaw, hangUp
}

func (p *faultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	flaw, hangUp := p.next()
	switch flaw {
	case lostRequest:
		panic(http.ErrAbortHandler)
	case proxyErrorBefore:
		badGateway(w)
		return
	case cutRequest:
		p.forwardHalf(w, r, body)
		return
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
	switch flaw {
	case lostResponse:
		panic(http.ErrAbortHandler)
	case connectionReset:
		resetConnection(w)
	case proxyErrorAfter:
		badGateway(w)
	case cutResponse:
		deliver(w, got, len(got.body)/2)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		deliver(w, got, len(got.body))
	}
}

// forward passes a request on.
func (p *faultProxy) forward(r *http.Request, body []byte) <-chan response {
	arrived := make(chan response, 1)
	p.inFlight.Go(func() {
		out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.app.url+r.URL.Path, bytes.NewReader(body))
		if err == nil {
			out.Header = r.Header.Clone()
			var got response
			if got, err = p.app.do(out); err == nil {
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

// forwardHalf passes on half of a request, which its sender thinks is whole, and
// the answer to that.
func (p *faultProxy) forwardHalf(w http.ResponseWriter, r *http.Request, body []byte) {
	conn, err := new(net.Dialer).DialContext(r.Context(), "tcp", strings.TrimPrefix(p.app.url, "http://"))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	header := r.Header.Clone()
	header.Set("Content-Length", strconv.Itoa(len(body)))
	var half bytes.Buffer
	fmt.Fprintf(&half, "%s %s HTTP/1.1\r\nHost: orders\r\n", r.Method, r.URL.Path)
	_ = header.Write(&half)
	fmt.Fprintf(&half, "\r\n%s", body[:len(body)/2])
	_, _ = half.WriteTo(conn)
	_ = conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	got, err := readResponse(resp)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	deliver(w, got, len(got.body))
}

// deliver passes an answer back, or so many bytes of its body.
func deliver(w http.ResponseWriter, got response, bytes int) {
	for name, values := range got.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(got.body)))
	w.WriteHeader(got.status)
	_, _ = w.Write(got.body[:bytes])
}

func badGateway(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = io.WriteString(w, "<html><h1>502 Bad Gateway</h1></html>")
}

// resetConnection closes it with an RST.
func resetConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
