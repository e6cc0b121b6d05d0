package main

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

// countingProxy is a TCP proxy for PostgreSQL that counts round trips and commits.
type countingProxy struct {
	listener net.Listener
	target   string

	roundTrips atomic.Int64 // each ends with ReadyForQuery
	commits    atomic.Int64
}

// newCountingProxy returns the proxy and the database URL through it.
func newCountingProxy(ctx context.Context, database string) (*countingProxy, string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, "", err
	}
	p := &countingProxy{target: u.Host}
	if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, "", err
	}
	go p.serve(ctx)
	u.Host = p.listener.Addr().String()
	return p, u.String(), nil
}

func (p *countingProxy) close() error { return p.listener.Close() }

func (p *countingProxy) reset() {
	p.roundTrips.Store(0)
	p.commits.Store(0)
}

func (p *countingProxy) serve(ctx context.Context) {
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

func (p *countingProxy) forward(client, server net.Conn) {
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

func (p *countingProxy) countMessages(stream io.Reader) {
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
			p.roundTrips.Add(1)
		case *pgproto3.CommandComplete:
			if string(m.CommandTag) == "COMMIT" {
				p.commits.Add(1)
			}
		}
	}
}
