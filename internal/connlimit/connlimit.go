// Package connlimit bounds the connections of an HTTP/1.1 server so that slow, idle or unknown
// clients do not lock the others out (R25).
//
// A connection is busy once its request is complete and its handler has called [Verified].
// At the limit, a new connection closes another one: first one whose client does not read
// the response, then the oldest one that never had verified credentials, and then the
// verified one that has waited longest for its client. If none can be closed, new
// connections wait in the kernel's backlog.
//
// Handlers must read the request's body before they work.
package connlimit

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// minWait is a client's time to send its request, and stallTimeout its time to read a
	// part of a response, before its connection can be closed.
	minWait      = 50 * time.Millisecond
	stallTimeout = 5 * time.Second

	// pausePerConnection is multiplied by the number of unverified connections, so all of
	// them together repeat a thousand requests a second.
	pausePerConnection = time.Millisecond

	readBuffer = 64 << 10 // bytes in the kernel, which by default grow to megabytes
)

// Serve calls server.Serve with at most limit connections. It sets the server's Handler,
// ConnContext and ConnState.
func Serve(server *http.Server, l net.Listener, limit int) error {
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connKey{}).(*conn)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		c.listener.begin(c, cancel)
		r = r.WithContext(ctx) // a copy: the server still needs its own body
		if r.Body != http.NoBody {
			r.Body = &body{r.Body, c}
		} else {
			c.listener.received(c)
		}
		handler.ServeHTTP(w, r)
	})
	server.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, nc)
	}
	server.ConnState = func(nc net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			c := nc.(*conn)
			c.listener.wait(c)
		}
	}
	return server.Serve(&listener{
		Listener: l,
		limit:    limit,
		freed:    make(chan struct{}, 1),
		closed:   make(chan struct{}),
	})
}

// Verified marks the credentials of a request as verified. Without [Serve], it does nothing.
func Verified(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.listener.verified(c)
	}
}

type connKey struct{}

// body marks the request as received at its end.
type body struct {
	io.ReadCloser
	conn *conn
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.conn.listener.received(b.conn) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

type listener struct {
	net.Listener
	limit  int
	freed  chan struct{} // holds an element after a connection was closed
	closed chan struct{}

	mu         sync.Mutex
	count      int
	unverified list.List // of *conn without any verified request, oldest first
	waiting    list.List // of other *conn that are not busy, longest first
	writing    list.List // of *conn in Write, longest first
}

type conn struct {
	net.Conn
	listener *listener
	gone     chan struct{} // closed with the connection

	// Under the listener's mutex.
	removed         bool
	unverified      *list.Element      // nil after the first verified request
	waiting         *list.Element      // nil while unverified or busy
	waitingSince    time.Time          // while unverified or waiting
	cancelRequest   context.CancelFunc // nil between requests
	requestVerified bool
	requestReceived bool
	pause           time.Duration // before the next request is read
	writing         *list.Element // nil outside of Write
	writingSince    time.Time
}

// Accept returns the next connection once there are fewer than the limit.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(readBuffer)
	}
	c := &conn{Conn: nc, listener: l, gone: make(chan struct{})}
	for !l.add(c) {
		select {
		case <-l.freed:
		case <-time.After(minWait):
		case <-l.closed:
			_ = nc.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

func (l *listener) Close() error {
	close(l.closed)
	return l.Listener.Close()
}

// add closes another connection at the limit, or reports false if none can be closed.
func (l *listener) add(c *conn) bool {
	l.mu.Lock()
	var longest *conn
	if l.count >= l.limit {
		if longest = l.longest(); longest == nil {
			l.mu.Unlock()
			return false
		}
		l.remove(longest)
	}
	l.count++
	c.unverified, c.waitingSince = l.unverified.PushBack(c), time.Now()
	l.mu.Unlock()
	if longest != nil {
		_ = longest.Conn.Close()
	}
	return true
}

func (l *listener) longest() *conn {
	if first := l.writing.Front(); first != nil {
		if c := first.Value.(*conn); time.Since(c.writingSince) >= stallTimeout {
			return c
		}
	}
	for _, candidates := range []*list.List{&l.unverified, &l.waiting} {
		if first := candidates.Front(); first != nil {
			if c := first.Value.(*conn); time.Since(c.waitingSince) >= minWait {
				return c
			}
		}
	}
	return nil
}

func (l *listener) remove(c *conn) {
	if c.removed {
		return
	}
	c.removed = true
	close(c.gone)
	if c.cancelRequest != nil {
		c.cancelRequest()
	}
	l.count--
	unlist(&l.unverified, &c.unverified)
	unlist(&l.waiting, &c.waiting)
	unlist(&l.writing, &c.writing)
}

func unlist(from *list.List, element **list.Element) {
	if *element != nil {
		from.Remove(*element)
		*element = nil
	}
}

// begin begins a request, which remove cancels, because net/http does not notice a closed
// connection if it has read a part of the next request.
func (l *listener) begin(c *conn, cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.removed {
		cancel()
	}
	c.cancelRequest = cancel
}

func (l *listener) verified(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.requestVerified = true
	if c.unverified != nil {
		unlist(&l.unverified, &c.unverified)
		c.waiting, c.waitingSince = l.waiting.PushBack(c), time.Now()
	}
	l.updateBusy(c)
}

// received reports false if c is closed.
func (l *listener) received(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.requestReceived = true
	l.updateBusy(c)
	return !c.removed
}

func (l *listener) updateBusy(c *conn) {
	if c.requestVerified && c.requestReceived {
		unlist(&l.waiting, &c.waiting)
	}
}

// wait marks c as waiting for its client. A request without verified credentials does not
// restart the wait.
func (l *listener) wait(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.cancelRequest, c.requestVerified, c.requestReceived = nil, false, false
	if !c.removed && c.unverified == nil && c.waiting == nil {
		c.waiting, c.waitingSince = l.waiting.PushBack(c), time.Now()
	}
	if c.unverified != nil {
		c.pause = time.Duration(l.unverified.Len()) * pausePerConnection
	}
}

// SetReadDeadline pauses an unverified connection, between two requests, when net/http has
// released the memory of the first one.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	pause := c.pause
	c.pause = 0
	c.listener.mu.Unlock()
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-c.gone:
		}
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) Write(p []byte) (int, error) {
	l := c.listener
	l.mu.Lock()
	if !c.removed && c.writing == nil {
		c.writing, c.writingSince = l.writing.PushBack(c), time.Now()
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		unlist(&l.writing, &c.writing)
	}()
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	l := c.listener
	l.mu.Lock()
	l.remove(c)
	l.mu.Unlock()
	select {
	case l.freed <- struct{}{}:
	default:
	}
	return c.Conn.Close()
}
