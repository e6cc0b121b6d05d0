package limiter

import "net/http"

// permit is the permit of one request, for one goroutine.
type permit struct {
	limiter *Limiter
	working bool
}

type permitKey struct{}

// release ends the request.
func (p *permit) release() {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
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
	if w := p.limiter.enqueue(); w != nil {
		<-w.granted
	}
	p.working = true
}

// enqueue returns nil if a request that resumes has its permit, otherwise its waiter.
func (l *Limiter) enqueue() *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running < l.config.Work {
		l.running++
		return nil
	}
	w := &waiter{granted: make(chan struct{})}
	l.resuming = append(l.resuming, w)
	return w
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
