package payments

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// maxResponse bounds a response's body, decompressed. An intent has about 2 KiB, a
// page of a hundred about 200 KiB.
const maxResponse = 1 << 20

// sendTrace records what an attempt did on the network, which stripe-go does not
// return.
type sendTrace struct {
	requested, obtained atomic.Int32 // connections
	reachedTransport    bool
	status              int
	header              http.Header
}

type sendTraceKey struct{}

// traceSend returns a context whose attempt is recorded in the returned sendTrace.
func traceSend(ctx context.Context) (context.Context, *sendTrace) {
	t := &sendTrace{}
	ctx = context.WithValue(ctx, sendTraceKey{}, t)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.requested.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { t.obtained.Add(1) },
	}), t
}

// notSent is the only proof that a failed attempt had no effect: the transport never
// got the request, or it requested connections and obtained none. The error value
// proves nothing: if a reused connection breaks, net/http sends again on a new one,
// and returns the dial error of the second although the first copy arrived. A
// transport without trace (requested is 0) proves nothing either.
func (t *sendTrace) notSent() bool {
	return !t.reachedTransport || t.requested.Load() > 0 && t.obtained.Load() == 0
}

// transport fills the sendTrace and limits the body.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		_ = req.Body.Close()
		return nil, err
	}
	trace := ctx.Value(sendTraceKey{}).(*sendTrace)
	trace.reachedTransport = true
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	trace.status, trace.header = resp.StatusCode, resp.Header
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxResponse)
	return resp, nil
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
