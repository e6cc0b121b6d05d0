// Package proxytest breaks and delays COMMITs between a pool and its server.
package proxytest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Fault is what a [Proxy] does to a COMMIT.
type Fault int

const (
	// CutBefore breaks the connection; the server never sees the COMMIT.
	CutBefore Fault = iota + 1

	// CutAfter breaks the connection when the server has committed.
	CutAfter

	// FatalBefore ends the session with a FATAL error; the server never sees the
	// COMMIT.
	FatalBefore

	// FatalAfter does so when the server has committed.
	FatalAfter

	// ErrorAfter replaces the response to a COMMIT that was executed by an error, and
	// keeps the connection. A coordinator of Citus responds so if it loses a worker.
	ErrorAfter

	// NotReplicated inserts the warning that the wait for the standby was cancelled.
	NotReplicated

	// HoldCommit breaks the connection and delays the COMMIT until [Proxy.Release].
	// Until then the transaction stays open, with all its locks.
	HoldCommit

	// HoldBatch delays everything that was sent together with the COMMIT.
	HoldBatch
)

// Proxy forwards a pool's connections to the server and breaks chosen COMMITs.
type Proxy struct {
	listener net.Listener
	stopped  chan struct{} // closed after the test
	sessions sync.WaitGroup
	cancels  atomic.Int64
	held     atomic.Int64

	mu       sync.Mutex
	count    int // COMMITs until the next fault; 0 if none is armed
	fault    Fault
	released chan struct{} // closed by the next Release
}

// New starts a proxy, which ends with the test. Create it before its pool.
func New(t testing.TB) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, released: make(chan struct{}), stopped: make(chan struct{})}
	t.Cleanup(func() {
		close(p.stopped)
		require.NoError(t, listener.Close())
		p.sessions.Wait()
	})
	return p
}

// Configure sends a pool's connections through the proxy, unencrypted.
func (p *Proxy) Configure(config *pgxpool.Config) {
	network, address := pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	p.sessions.Go(func() { p.accept(network, address) })
	config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = nil, nil
	config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", p.listener.Addr().String())
	}
}

// Strike arms a fault for the n-th COMMIT from now on.
func (p *Proxy) Strike(n int, fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.fault = n, fault
}

// Struck reports whether the armed fault has happened.
func (p *Proxy) Struck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count == 0
}

// Release sends what the Hold faults have delayed to the server.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.released)
	p.released = make(chan struct{})
}

// Held counts the delayed connections, until the server has executed what was
// released.
func (p *Proxy) Held() int { return int(p.held.Load()) }

// Cancels counts the requests to cancel a statement.
func (p *Proxy) Cancels() int { return int(p.cancels.Load()) }

// next returns the fault of the next COMMIT, and what releases it.
func (p *Proxy) next() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 {
		return 0, nil
	}
	p.count--
	if p.count > 0 {
		return 0, nil
	}
	return p.fault, p.released
}

func (p *Proxy) accept(network, address string) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.sessions.Go(func() { p.serve(client, network, address) })
	}
}

func (p *Proxy) serve(client net.Conn, network, address string) {
	server, err := new(net.Dialer).DialContext(context.Background(), network, address)
	if err != nil {
		_ = client.Close()
		return
	}
	s := newSession(p, client, server)
	defer s.close()
	go func() { // closes the connection when the test ends
		select {
		case <-p.stopped:
			s.close()
		case <-s.closed:
		}
	}()
	if !s.begin() {
		return
	}
	responses := make(chan struct{})
	go func() {
		defer close(responses)
		s.forwardResponses()
	}()
	s.forwardRequests()
	<-responses
}
