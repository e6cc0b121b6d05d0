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
type flaw string

const (
	fine        flaw = "nothing"
	lostRequest flaw = "lost before it arrives"
	cutRequest  flaw = "request cut"
	lostAnswer  flaw = "answer lost after it was made"
	cutAnswer   flaw = "answer cut"
	reset       flaw = "connection reset"
	gatewayOnly flaw = "502 of a proxy that did not pass it on"
	gatewayLate flaw = "502 of a proxy that did"
	threefold   flaw = "sent three times at once"
)

var flaws = []flaw{fine, lostRequest, cutRequest, lostAnswer, cutAnswer, reset, gatewayOnly, gatewayLate, threefold}

// flaky is a network between a client and the API. What it has passed on goes
// its way, whether the client stays or not.
type flaky struct {
	app    *app
	url    string
	under  sync.WaitGroup // requests under way
	flawed map[flaw]int

	mu     sync.Mutex
	script []flaw                // of the requests to come; then all is fine
	hold   *stripetest.Injection // nil: the provider holds nothing
	errs   []error               // answers that break the contract
}

func newFlaky(t *testing.T, a *app) *flaky {
	t.Helper()
	f := &flaky{app: a, flawed: map[flaw]int{}}
	server := httptest.NewServer(f)
	f.url = server.URL
	t.Cleanup(server.Close)
	return f
}

// plan says what happens to the requests to come, and which of the provider's
// faults the client does not wait for.
func (f *flaky) plan(script []flaw, hold *stripetest.Injection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script, f.hold = script, hold
}

// release lets go on what the provider holds.
func (f *flaky) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hold != nil {
		f.hold.Release()
		f.hold = nil
	}
}

// settle waits until nothing is under way, and returns what broke the contract.
func (f *flaky) settle() error {
	f.under.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// next returns the flaw of a request, and a channel that tells its client to
// hang up.
func (f *flaky) next() (flaw, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hangUp <-chan struct{}
	if f.hold != nil {
		hangUp = f.hold.Reached()
	}
	flaw := fine
	if len(f.script) > 0 {
		flaw, f.script = f.script[0], f.script[1:]
	}
	f.flawed[flaw]++
	return flaw, hangUp
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	flaw, hangUp := f.next()
	switch flaw {
	case lostRequest:
		panic(http.ErrAbortHandler)
	case gatewayOnly:
		badGateway(w)
		return
	case cutRequest:
		f.forwardHalf(w, r, body)
		return
	case threefold:
		f.forward(r, body)
		f.forward(r, body)
	}
	var got answer
	select {
	case got = <-f.forward(r, body):
	case <-hangUp:
		panic(http.ErrAbortHandler)
	}
	switch flaw {
	case lostAnswer:
		panic(http.ErrAbortHandler)
	case reset:
		resetConnection(w)
	case gatewayLate:
		badGateway(w)
	case cutAnswer:
		deliver(w, got, len(got.body)/2)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		deliver(w, got, len(got.body))
	}
}

// forward passes a request on.
func (f *flaky) forward(r *http.Request, body []byte) <-chan answer {
	arrived := make(chan answer, 1)
	f.under.Go(func() {
		out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, f.app.url+r.URL.Path, bytes.NewReader(body))
		if err == nil {
			out.Header = r.Header.Clone()
			var got answer
			if got, err = f.app.try(out); err == nil {
				arrived <- got
				return
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
		close(arrived)
	})
	return arrived
}

// forwardHalf passes on half of a request, which its sender thinks is whole, and
// the answer to that.
func (f *flaky) forwardHalf(w http.ResponseWriter, r *http.Request, body []byte) {
	conn, err := new(net.Dialer).DialContext(r.Context(), "tcp", strings.TrimPrefix(f.app.url, "http://"))
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
	got, err := read(resp)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	deliver(w, got, len(got.body))
}

// deliver passes an answer back, or so many bytes of its body.
func deliver(w http.ResponseWriter, got answer, bytes int) {
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
