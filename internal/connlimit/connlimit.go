// Package connlimit bounds the connections of an HTTP/1.1 server, and the memory that they hold
// for slow clients, so that unknown clients do not lock out the others (R25, bounded outsiders).
//
// A connection waits for its client, except while a handler works that has called [Verified]. At a
// bound, the connection is closed that has waited longest: first of those that never had verified
// credentials, then of the others. If none waits, new connections stay in the kernel's backlog.
package connlimit

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	minWait        = 50 * time.Millisecond // a client's time to send a request before its connection can be closed
	writeTimeout   = 10 * time.Second      // a client's time to read a part of a response
	maxHeld        = 32 << 20              // bytes of unverified requests, and of responses being sent
	unverifiedRate = 1000                  // further requests a second of all unverified connections
)

// Serve calls server.Serve with up to limit connections. It sets the server's ConnContext and
// ConnState.
func Serve(server *http.Server, inner net.Listener, limit int) error {
	l := &listener{Listener: inner, limit: limit}
	server.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		c := nc.(*conn)
		defer l.lock()()
		// net/http does not notice a closed connection if it has read a part of the next request.
		c.ctx, c.cancel = context.WithCancel(context.WithValue(ctx, connKey{}, c))
		l.open++
		c.wait(&l.unverified)
		return c.ctx
	}
	server.ConnState = changed
	return server.Serve(l)
}

type connKey struct{}

// Verified marks the credentials of a request as verified. Without [Serve], it does nothing.
func Verified(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		defer c.listener.lock()()
		c.work()
	}
}

type listener struct {
	net.Listener
	limit int

	mu         sync.Mutex
	open       int
	totalHeld  int       // bytes, of all connections
	unverified list.List // of *conn that never had verified credentials, longest wait first
	verified   list.List // of other *conn that wait for their client, longest wait first
}

// Accept returns the next connection once there are fewer than the limit.
func (l *listener) Accept() (net.Conn, error) {
	for !l.hasRoom() {
		<-time.After(minWait)
	}
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: nc, listener: l}, nil
}

func (l *listener) lock() (unlock func()) {
	l.mu.Lock()
	return l.mu.Unlock
}

func (l *listener) hasRoom() bool {
	defer l.lock()()
	return l.open < l.limit || l.closeLongest(func(c *conn) bool { return time.Since(c.since) >= minWait })
}

// closeLongest closes the matching connection that has waited longest, and reports whether there was
// one.
func (l *listener) closeLongest(match func(*conn) bool) bool {
	for _, waiting := range []*list.List{&l.unverified, &l.verified} {
		for element := waiting.Front(); element != nil; element = element.Next() {
			if c := element.Value.(*conn); match(c) {
				_ = c.close()
				return true
			}
		}
	}
	return false
}

type conn struct {
	net.Conn
	listener *listener
	ctx      context.Context // until the connection is closed
	cancel   context.CancelFunc

	// The listener's lock guards these fields, and the callers of the private methods hold it.
	waiting *list.List // the listener's unverified or verified, nil at work
	element *list.Element
	since   time.Time // when the wait began
	held    int       // bytes
}

func (c *conn) wait(list *list.List) {
	if c.ctx.Err() == nil {
		c.waiting, c.element, c.since = list, list.PushBack(c), time.Now()
	}
}

func (c *conn) work() {
	if c.waiting != nil {
		c.release(c.held)
		c.waiting.Remove(c.element)
		c.waiting = nil
	}
}

// hold counts bytes that are in memory while the connection waits for its client. While there are too
// many, it closes connections (R25, bounded outsiders).
func (c *conn) hold(bytes int) {
	if c.waiting != nil {
		c.held += bytes
		c.listener.totalHeld += bytes
	}
	for c.listener.totalHeld > maxHeld {
		c.listener.closeLongest(func(other *conn) bool { return other.held > 0 })
	}
}

// release stops counting bytes, unless the end of the wait has released them already.
func (c *conn) release(bytes int) {
	bytes = min(bytes, c.held)
	c.held -= bytes
	c.listener.totalHeld -= bytes
}

func (c *conn) close() error {
	if c.ctx.Err() == nil {
		c.work()
		c.listener.open--
		c.cancel()
	}
	return c.Conn.Close()
}

// changed handles the end of a request. An unverified connection pauses. A verified one begins to wait
// for its next request; if this request had no credentials, the last wait has not ended.
func changed(nc net.Conn, state http.ConnState) {
	if state != http.StateIdle {
		return
	}
	c := nc.(*conn)
	var pause <-chan time.Time
	l := c.listener
	unlock := l.lock()
	c.release(c.held)
	switch c.waiting {
	case nil:
		c.wait(&l.verified)
	case &l.unverified:
		pause = time.After(time.Duration(l.unverified.Len()) * time.Second / unverifiedRate)
	}
	unlock()
	if pause != nil {
		select {
		case <-pause:
		case <-c.ctx.Done():
		}
	}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	defer c.listener.lock()()
	c.hold(n)
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	unlock := c.listener.lock()
	working := c.waiting == nil
	if working {
		c.wait(&c.listener.verified)
	}
	c.hold(len(p))
	unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := c.Conn.Write(p)
	defer c.listener.lock()()
	c.release(len(p))
	if working {
		c.work()
	}
	return n, err
}

func (c *conn) Close() error {
	defer c.listener.lock()()
	return c.close()
}
