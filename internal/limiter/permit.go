package limiter

import "net/http"

// permit is the permit of one request, for one goroutine.
type permit struct {
	limiter *Limiter
	account *account
	working bool
}

type permitKey struct{}

// release ends the request.
func (p *permit) release() {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exit(p.account)
	if p.working {
		l.running--
		l.grant()
	}
}

// suspend returns the permit while the request waits for another system.
func (p *permit) suspend() {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	p.working = false
	l.running--
	l.grant()
}

// resume takes the permit again, before all new requests. It is never rejected.
func (p *permit) resume() {
	l := p.limiter
	w := make(waiter)
	l.mu.Lock()
	l.resuming.PushBack(w)
	l.grant()
	l.mu.Unlock()
	<-w
	p.working = true
}

// Transport returns a transport that suspends the permit in a request's context
// while next sends the request. Without a permit it only sends it.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if p, admitted := r.Context().Value(permitKey{}).(*permit); admitted {
		p.suspend()
		defer p.resume()
	}
	return t.next.RoundTrip(r)
}

// CloseIdleConnections closes what next keeps open.
func (t transport) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}
