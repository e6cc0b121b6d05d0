package idempotencytest

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Meter counts the round trips and commits of a pool's connections.
type Meter struct {
	roundTrips atomic.Int64
	commits    atomic.Int64
}

// NewMeter returns a meter for one pool.
func NewMeter() *Meter { return &Meter{} }

// Configure attaches the meter to a pool's connections. It turns off encryption, and
// the pings of idle connections, which would be counted.
func (m *Meter) Configure(config *pgxpool.Config) {
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = nil, nil
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &meteredConn{Conn: conn, meter: m}, nil
	}
}

// RoundTrips counts the requests that were followed by a response. The first
// execution of a statement on a connection takes two: it is prepared first.
func (m *Meter) RoundTrips() int { return int(m.roundTrips.Load()) }

// Commits counts the COMMITs that the server has confirmed.
func (m *Meter) Commits() int { return int(m.commits.Load()) }

// Reset sets both counts to zero.
func (m *Meter) Reset() {
	m.roundTrips.Store(0)
	m.commits.Store(0)
}

type meteredConn struct {
	net.Conn
	meter *Meter
	sent  atomic.Bool // something was written since the last response
	tags  tagReader
}

func (c *meteredConn) Write(b []byte) (int, error) {
	c.sent.Store(true)
	return c.Conn.Write(b)
}

func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.sent.Swap(false) {
		c.meter.roundTrips.Add(1)
	}
	c.tags.read(b[:n], func(tag string) {
		if tag == "COMMIT" {
			c.meter.commits.Add(1)
		}
	})
	return n, err
}

// tagReader finds the tags of CommandComplete messages in a stream that is split
// anywhere.
type tagReader struct {
	header []byte // type and length of the current message, as far as read
	body   []byte // of a CommandComplete, as far as read
	left   int    // bytes of the body still to come
}

const headerLength = 5 // one byte for the type, four for the length

func (r *tagReader) read(b []byte, found func(tag string)) {
	for len(b) > 0 {
		if missing := headerLength - len(r.header); missing > 0 {
			n := min(missing, len(b))
			r.header, b = append(r.header, b[:n]...), b[n:]
			if n < missing {
				return
			}
			r.left = int(binary.BigEndian.Uint32(r.header[1:])) - 4 // the length counts itself
		}
		n := min(r.left, len(b))
		isTag := r.header[0] == 'C'
		if isTag {
			r.body = append(r.body, b[:n]...)
		}
		b, r.left = b[n:], r.left-n
		if r.left > 0 {
			return
		}
		if isTag {
			found(strings.TrimRight(string(r.body), "\x00"))
		}
		r.header, r.body = r.header[:0], r.body[:0]
	}
}
