// Package connlimit bounds the connections of an HTTP server without letting slow or
// idle clients lock the others out.
//
// A connection is busy from the last byte of a request to the end of the response.
// Otherwise the server waits for its client. At the limit, a new connection closes the
// one that has waited longest. A busy connection is closed only if its client does not
// read the response. If none can be closed, new connections wait in the kernel's
// backlog.
//
// Handlers must read the request's body before they start to work. The server speaks
// HTTP/1.1 without TLS.
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
	// minWait is how long a connection may wait before it can be closed: in a burst, a
	// client's time to send its request.
	minWait = 50 * time.Millisecond

	// stallTimeout is how long a client may take to read a part of a response before
	// its connection can be closed.
	stallTimeout = 5 * time.Second
)

// Serve calls server.Serve with at most limit connections. It wraps the server's
// Handler, and sets ConnContext and ConnState.
func Serve(server *http.Server, l net.Listener, limit int) error {
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connKey{}).(*conn)
		if r.Body != http.NoBody {
			r = r.WithContext(r.Context()) // a copy: the server still needs its own body
			r.Body = &body{r.Body, c}
		} else if !c.listener.busy(c) {
			panic(http.ErrAbortHandler) // just closed, so the request must not run
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

type connKey struct{}

// body marks its connection as busy at its end.
type body struct {
	io.ReadCloser
	conn *conn
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.conn.listener.busy(b.conn) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// listener counts connections, and orders those that wait for their clients.
type listener struct {
	net.Listener
	limit  int
	freed  chan struct{} // holds an element after a connection was closed
	closed chan struct{}

	mu      sync.Mutex
	count   int
	waiting list.List // of *conn that are not busy, longest first
	writing list.List // of *conn in Write, longest first
}

type conn struct {
	net.Conn
	listener *listener

	// Under the listener's mutex.
	removed      bool
	waiting      *list.Element // nil while busy
	waitingSince time.Time
	writing      *list.Element // nil outside of Write
	writingSince time.Time
}

// Accept returns the next connection once there are fewer than the limit.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, listener: l}
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

// Close is called once by net/http.
func (l *listener) Close() error {
	close(l.closed)
	return l.Listener.Close()
}

// add counts c, after it has closed another connection at the limit. It reports false
// if none can be closed.
func (l *listener) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= l.limit {
		longest := l.longest()
		if longest == nil {
			return false
		}
		l.remove(longest)
		_ = longest.Conn.Close()
	}
	l.count++
	c.waiting, c.waitingSince = l.waiting.PushBack(c), time.Now()
	return true
}

// longest returns the connection to close: a stalled one, else the one that has waited
// longest, or nil.
func (l *listener) longest() *conn {
	if first := l.writing.Front(); first != nil {
		if c := first.Value.(*conn); time.Since(c.writingSince) >= stallTimeout {
			return c
		}
	}
	if first := l.waiting.Front(); first != nil {
		if c := first.Value.(*conn); time.Since(c.waitingSince) >= minWait {
			return c
		}
	}
	return nil
}

func (l *listener) remove(c *conn) {
	if c.removed {
		return
	}
	c.removed = true
	l.count--
	unlist(&l.waiting, &c.waiting)
	unlist(&l.writing, &c.writing)
}

func unlist(from *list.List, element **list.Element) {
	if *element != nil {
		from.Remove(*element)
		*element = nil
	}
}

// busy marks c as busy. It reports false if c is closed already.
func (l *listener) busy(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	unlist(&l.waiting, &c.waiting)
	return !c.removed
}

// wait marks c as waiting for its client.
func (l *listener) wait(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.removed {
		return
	}
	unlist(&l.waiting, &c.waiting)
	c.waiting, c.waitingSince = l.waiting.PushBack(c), time.Now()
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
