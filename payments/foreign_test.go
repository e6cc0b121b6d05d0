package payments_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func calls() map[string]func(context.Context, *payments.Client) error {
	return map[string]func(context.Context, *payments.Client) error{
		"create": func(ctx context.Context, c *payments.Client) error {
			_, err := c.Create(ctx, createKey, createParams)
			return err
		},
		"confirm": func(ctx context.Context, c *payments.Client) error {
			_, err := c.Confirm(ctx, confirmKey, "pi_1", true)
			return err
		},
		"cancel": func(ctx context.Context, c *payments.Client) error {
			_, err := c.Cancel(ctx, "k-cancel", "pi_1")
			return err
		},
		"get": func(ctx context.Context, c *payments.Client) error { _, err := c.Get(ctx, "pi_1"); return err },
		"search": func(ctx context.Context, c *payments.Client) error {
			_, err := c.Search(ctx, "order_id", "1")
			return err
		},
		"list": func(ctx context.Context, c *payments.Client) error {
			_, _, err := c.List(ctx, time.Unix(1, 0), "")
			return err
		},
		"refund": func(ctx context.Context, c *payments.Client) error {
			_, err := c.Refund(ctx, refundKey, refundParams)
			return err
		},
		"list_refunds": func(ctx context.Context, c *payments.Client) error { _, err := c.ListRefunds(ctx, "pi_1"); return err },
		"list_all_refunds": func(ctx context.Context, c *payments.Client) error {
			_, _, err := c.ListAllRefunds(ctx, time.Unix(1, 0), "")
			return err
		},
		"list_all_disputes": func(ctx context.Context, c *payments.Client) error {
			_, _, err := c.ListAllDisputes(ctx, time.Unix(1, 0), "")
			return err
		},
		"list_disputes": func(ctx context.Context, c *payments.Client) error { _, err := c.ListDisputes(ctx, "pi_1"); return err },
		"list_events": func(ctx context.Context, c *payments.Client) error {
			_, _, _, err := c.ListEvents(ctx, time.Unix(1, 0), "")
			return err
		},
	}
}

// drip writes the text forever, a byte at a time.
func drip(conn net.Conn, text string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		<-tick.C
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
	}
}

// A server that is not Stripe, such as a gateway, holds no call for longer than its time, and its response
// proves nothing.
func TestTransport_foreignServer(t *testing.T) {
	t.Parallel()
	hold := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) } // until the client hangs up
	body := intent("succeeded")
	for name, answer := range map[string]func(net.Conn){
		"switches protocols": func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"+body)
			hold(conn)
		},
		"switches protocols, and drips": func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			drip(conn, " ")
		},
		"drips its status":  func(conn net.Conn) { drip(conn, "HTTP/1.1 200") },
		"drips its headers": func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"); drip(conn, "X: y\r\n") },
		"drips its body": func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
			drip(conn, " ")
		},
		"drips an error": func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 402 Payment Required\r\nContent-Length: 100000\r\n\r\n"+stripeError("card_error", "card_declined", ""))
			drip(conn, " ")
		},
		"drips early hints": func(conn net.Conn) { drip(conn, "HTTP/1.1 103 Early Hints\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := listen(t, func(conn *net.TCPConn) {
				readRequest(conn)
				answer(conn)
			})
			client := newClient(t, nil, at(url), func(c *payments.Config) { c.Timeout = time.Second })
			start := time.Now()
			var running sync.WaitGroup
			var failures sync.Map
			for call, send := range calls() {
				running.Go(func() { failures.Store(call, send(t.Context(), client)) })
			}
			running.Wait()
			require.Less(t, time.Since(start), 15*time.Second)
			for call := range calls() {
				err, _ := failures.Load(call)
				e := failure(t, err.(error))
				require.Equal(t, payments.Unknown, e.Outcome, call)
				require.False(t, e.SavedUnderKey, call)
			}
		})
	}
}

func TestTransport_endlessBody(t *testing.T) {
	t.Parallel()
	for call, limit := range map[string]int64{"confirm": 1 << 20, "refund": 1 << 20, "get": 32 << 20, "list": 32 << 20} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			var sent spaces
			url, connections := listen(t, func(conn *net.TCPConn) {
				readRequest(conn)
				const size = 300 << 20
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
				_, _ = io.Copy(conn, io.LimitReader(&sent, size))
			})
			client := newClient(t, nil, at(url), func(c *payments.Config) { c.Timeout = 4 * time.Second })
			require.Equal(t, payments.Unknown, failure(t, calls()[call](t.Context(), client)).Outcome)
			const buffers = 64 << 20 // of both sockets, which the system sizes
			require.LessOrEqual(t, sent.n.Load(), int64(connections.Load())*(limit+buffers))
		})
	}
}

// spaces counts how many it has returned.
type spaces struct{ n atomic.Int64 }

func (s *spaces) Read(p []byte) (int, error) {
	s.n.Add(int64(len(p)))
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Only 200 is a success, and a body with another status is not read as one.
func TestTransport_otherStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{101, 102, 103, 199, 201, 202, 203, 204, 205, 206, 226, 299, 300, 304, 399} {
		for call, send := range calls() {
			e := failure(t, send(t.Context(), newClient(t, respond(response{status: status, body: intent("succeeded")}))))
			require.Equal(t, payments.Unknown, e.Outcome, "%d, %s", status, call)
			require.ErrorIs(t, e, payments.ErrUnreadable, "%d, %s", status, call)
		}
	}
}
