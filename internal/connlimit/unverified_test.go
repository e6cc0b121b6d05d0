package connlimit_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever outsiders have sent, the oldest of their connections is closed for a new one.
func TestServe_unverified(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"a lookup":          lookup,
		"pipelined lookups": lookup + lookup,
		"pipelined":         public + public,
		"a slow body":       "POST /lookup HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 10
			bubble(t, limit, func(t *testing.T, f fixture) {
				outsiders := make([]*client, limit)
				for i := range outsiders {
					outsiders[i] = f.dial().send(sent)
					advance(time.Millisecond)
				}
				advance(time.Second)
				begin := time.Now()
				for range limit {
					f.dial().send(public).receive("-")
				}
				require.Less(t, time.Since(begin), time.Second)
				for _, o := range outsiders {
					o.requireSevered()
				}
			})
		})
	}
}

// requireSevered skips the responses that were sent before the connection was closed.
func (c *client) requireSevered() {
	c.t.Helper()
	for {
		_, err := c.reader.ReadByte()
		if err != nil {
			require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "still open")
			return
		}
	}
}

// A connection that was verified once outlives those that never were.
func TestServe_verifiedLast(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, f fixture) {
		verified := f.dial().send(get)
		verified.receive("-")
		verified.send(public).receive("-")
		advance(time.Second)
		outsiders := []*client{f.dial(), f.dial().send(lookup)}
		advance(time.Second)
		for _, o := range outsiders {
			f.dial().send(get).receive("-")
			o.requireClosed()
		}
		verified.send(get).receive("-")
	})
}

// Unverified connections together repeat a thousand requests a second. The others do not
// pause.
func TestServe_pause(t *testing.T) {
	t.Parallel()
	const connections = 50
	bubble(t, connections+1, func(t *testing.T, f fixture) {
		verified := f.dial().send(get)
		verified.receive("-")
		for range connections - 1 {
			f.dial()
		}
		outsider := f.dial().send(public + public + public)
		begin := time.Now()
		outsider.receive("-")
		require.Zero(t, time.Since(begin))
		outsider.receive("-")
		require.Equal(t, connections*time.Millisecond, time.Since(begin))
		outsider.receive("-")
		require.Equal(t, 2*connections*time.Millisecond, time.Since(begin))
		begin = time.Now()
		for range 3 {
			verified.send(get).receive("-")
		}
		require.Zero(t, time.Since(begin))
	})
}
