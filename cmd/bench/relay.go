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

// relay stands between a client and PostgreSQL, and counts what they exchange.
type relay struct {
	listener net.Listener
	target   string

	roundTrips atomic.Int64 // each ends with ReadyForQuery
	commits    atomic.Int64
}

// newRelay returns a relay, and the URL of the database behind it.
func newRelay(ctx context.Context, database string) (*relay, string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, "", err
	}
	r := &relay{target: u.Host}
	if r.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, "", err
	}
	go r.serve(ctx)
	u.Host = r.listener.Addr().String()
	return r, u.String(), nil
}

func (r *relay) close() error { return r.listener.Close() }

func (r *relay) reset() {
	r.roundTrips.Store(0)
	r.commits.Store(0)
}

func (r *relay) serve(ctx context.Context) {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := new(net.Dialer).DialContext(ctx, "tcp", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		go r.carry(client, server)
	}
}

// carry ends when either side does.
func (r *relay) carry(client, server net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	both.Go(func() {
		r.count(io.TeeReader(server, client))
		_ = client.Close()
	})
	both.Wait()
}

// count reads what the server sends to its end.
func (r *relay) count(answers io.Reader) {
	messages := pgproto3.NewFrontend(answers, nil)
	for {
		message, err := messages.Receive()
		if err != nil {
			// A message that is not understood: carry on without counting.
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) {
				_, _ = io.Copy(io.Discard, answers)
			}
			return
		}
		switch m := message.(type) {
		case *pgproto3.ReadyForQuery:
			r.roundTrips.Add(1)
		case *pgproto3.CommandComplete:
			if string(m.CommandTag) == "COMMIT" {
				r.commits.Add(1)
			}
		}
	}
}
