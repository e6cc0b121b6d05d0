package payments

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// maxAnswer bounds an answer's body, decompressed. An intent is about 2 KiB, a
// page of a hundred about 200 KiB.
const maxAnswer = 1 << 20

// NewTransport returns what a Client uses when it is given no Transport, for
// those who put something around it: tracing, say. It reads no proxy from the
// environment.
func NewTransport() *http.Transport {
	return &http.Transport{
		// A healthy connect takes a fraction of a second. Waiting longer than
		// this costs the time for a resend, and a failed dial is a sure NotExecuted.
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost:    1000, // all requests go to one host, and hundreds wait for it when it is slow
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// wire records what one send did on the network, which stripe-go does not tell.
type wire struct {
	asked, got atomic.Int32 // connections asked for and handed out
	handed     bool         // the request reached the transport
	status     int
	header     http.Header
}

type wireKey struct{}

// observe returns a context under which one send reports to the returned wire.
func observe(ctx context.Context) (context.Context, *wire) {
	w := &wire{}
	ctx = context.WithValue(ctx, wireKey{}, w)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.asked.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { w.got.Add(1) },
	}), w
}

// nothingSent is the only proof that a failed send had no effect: the transport
// never saw it, or asked for connections and was given none. The error value
// proves nothing: net/http itself resends on a fresh connection when a reused
// one breaks, and then reports the dial error of the second although the first
// copy arrived. A transport that does not report (asked is 0) proves nothing
// either.
func (w *wire) nothingSent() bool {
	return !w.handed || w.asked.Load() > 0 && w.got.Load() == 0
}

// transport keeps the record and limits the body.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		_ = req.Body.Close()
		return nil, err
	}
	w := ctx.Value(wireKey{}).(*wire)
	w.handed = true
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	w.status, w.header = resp.StatusCode, resp.Header
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	return resp, nil
}

// CloseIdleConnections is what http.Client calls on its transport, if it can.
func (t transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
