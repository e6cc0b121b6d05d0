package payments

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// NewTransport returns the default transport of a [Client], which uses no proxy.
func NewTransport() *http.Transport {
	return &http.Transport{
		// Longer timeouts would leave no time for a retry.
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost:    1000, // all requests go to one host
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

const maxResponse = 1 << 20 // bytes; a page of 100 intents has about 200 KiB

// sendTrace records the network activity of one attempt, which stripe-go hides.
type sendTrace struct {
	requested, obtained atomic.Int32 // connections
	reachedTransport    bool
	status              int
	header              http.Header
}

type sendTraceKey struct{}

func traceSend(ctx context.Context) (context.Context, *sendTrace) {
	t := &sendTrace{}
	ctx = context.WithValue(ctx, sendTraceKey{}, t)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.requested.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { t.obtained.Add(1) },
	}), t
}

// notSent reports whether the request certainly never left.
func (t *sendTrace) notSent() bool {
	return !t.reachedTransport || t.requested.Load() > 0 && t.obtained.Load() == 0
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	err := ctx.Err()
	// Timers and the monotonic clock stop while a machine is suspended.
	if deadline, ok := ctx.Deadline(); ok && err == nil && time.Now().Round(0).After(deadline.Round(0)) {
		err = context.DeadlineExceeded
	}
	if err != nil {
		_ = req.Body.Close()
		return nil, err
	}
	trace := ctx.Value(sendTraceKey{}).(*sendTrace)
	trace.reachedTransport = true
	once := *req // a RoundTripper must not change the request
	// Without GetBody, net/http cannot resend the request when a reused connection breaks (R13).
	once.GetBody = nil
	resp, err := t.base.RoundTrip(&once)
	if err != nil {
		return nil, err
	}
	trace.status, trace.header = resp.StatusCode, resp.Header
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxResponse)
	return resp, nil
}
