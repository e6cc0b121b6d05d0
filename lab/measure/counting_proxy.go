package measure

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// CountingProxy is a TCP proxy for PostgreSQL that counts round trips and commits.
type CountingProxy struct {
	URL        string       // of the database through this proxy
	RoundTrips atomic.Int64 // each ends with ReadyForQuery
	Commits    atomic.Int64

	listener net.Listener
	target   string
}

// NewCountingProxy returns a proxy for the database.
func NewCountingProxy(ctx context.Context, database string) (*CountingProxy, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	p := &CountingProxy{target: u.Host}
	if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go p.serve(ctx)
	u.Host = p.listener.Addr().String()
	p.URL = u.String()
	return p, nil
}

// Close ends the proxy. Open connections stay.
func (p *CountingProxy) Close() error { return p.listener.Close() }

// Reset sets both counts to zero.
func (p *CountingProxy) Reset() {
	p.RoundTrips.Store(0)
	p.Commits.Store(0)
}

func (p *CountingProxy) serve(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		go p.forward(client, server)
	}
}

func (p *CountingProxy) forward(client, server net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	both.Go(func() {
		p.countMessages(io.TeeReader(server, client))
		_ = client.Close()
	})
	both.Wait()
}

func (p *CountingProxy) countMessages(stream io.Reader) {
	messages := pgproto3.NewFrontend(stream, nil)
	for {
		message, err := messages.Receive()
		if err != nil {
			// Unknown message: forward the rest without counting.
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) {
				_, _ = io.Copy(io.Discard, stream)
			}
			return
		}
		switch m := message.(type) {
		case *pgproto3.ReadyForQuery:
			p.RoundTrips.Add(1)
		case *pgproto3.CommandComplete:
			if string(m.CommandTag) == "COMMIT" {
				p.Commits.Add(1)
			}
		}
	}
}
