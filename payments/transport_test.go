package payments_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

// listen handles each connection with handle. It returns the base URL and the number of
// connections.
func listen(t *testing.T, handle func(*net.TCPConn)) (string, *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var connections atomic.Int32
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return "http://" + listener.Addr().String(), &connections
}

func readRequest(conn net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

func respond(text string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, text)
	}
}

func respondIntent(conn net.Conn, status string) {
	body := intent(status)
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
}

func reset(conn *net.TCPConn) { _ = conn.SetLinger(0) } // Close then sends RST

func TestConfirm_connectionFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle func(*net.TCPConn)
		cause  error
	}{
		"reset before the request was read": {func(conn *net.TCPConn) {
			_, _ = conn.Read(make([]byte, 1))
			reset(conn)
		}, payments.ErrNoResponse},
		"reset after the request was read": {func(conn *net.TCPConn) {
			readRequest(conn)
			reset(conn)
		}, syscall.ECONNRESET},
		"closed without a response": {respond(""), io.EOF},
		"body cut off":              {respond("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + intent("succeeded")), io.ErrUnexpectedEOF},
		"not HTTP":                  {respond(clientSecret + "\r\n\r\n"), payments.ErrNoResponse},
		"malformed header line":     {respond("HTTP/1.1 200 OK\r\n" + clientSecret + "\r\n\r\n"), payments.ErrNoResponse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, connections := listen(t, test.handle)
			e := confirmFailure(t, newClient(t, url))
			require.Equal(t, payments.Unknown, e.Outcome, e)
			require.ErrorIs(t, e, test.cause)
			require.False(t, e.NeedsOperator || e.ReplayedError || e.UnexpectedState)
			require.Positive(t, e.RetryAfter)
			require.EqualValues(t, 3, connections.Load())
		})
	}
}

func TestConfirm_connectionRefused(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())

	e := confirmFailure(t, newClient(t, "http://"+listener.Addr().String()))
	require.Equal(t, payments.NotExecuted, e.Outcome)
	require.ErrorIs(t, e, payments.ErrNoResponse)
	require.ErrorIs(t, e, syscall.ECONNREFUSED)
	require.Equal(t, time.Second, e.RetryAfter)
}

func TestConfirm_untrustedCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	e := confirmFailure(t, newClient(t, server.URL))
	require.Equal(t, payments.NotExecuted, e.Outcome)
	var untrusted *tls.CertificateVerificationError
	require.ErrorAs(t, e, &untrusted)
}

func TestConfirm_cancelledBeforeSend(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, response{status: 200, body: intent("succeeded")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err := newClient(t, provider.url).Confirm(ctx, confirmKey, "pi_1", true)
	e := failure(t, err)
	require.Equal(t, payments.NotExecuted, e.Outcome)
	require.ErrorIs(t, e, context.Canceled)
	require.EqualError(t, e, "payments: not executed: no response: context canceled")
	require.Empty(t, provider.seen())
}

func TestConfirm_cancelledAfterSend(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url, connections := listen(t, func(conn *net.TCPConn) {
		readRequest(conn)
		cancel()
		_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
	})

	_, err := newClient(t, url).Confirm(ctx, confirmKey, "pi_1", true)
	e := failure(t, err)
	require.Equal(t, payments.Unknown, e.Outcome)
	require.ErrorIs(t, e, context.Canceled)
	require.EqualValues(t, 1, connections.Load())
}

func TestConfirm_firstAttemptHangs(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	url, _ := listen(t, func(conn *net.TCPConn) {
		readRequest(conn)
		if n.Add(1) == 1 {
			_, _ = conn.Read(make([]byte, 1))
			return
		}
		respondIntent(conn, "succeeded")
	})

	client := newClient(t, url, func(cfg *payments.Config) { cfg.Backoff = time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the caller has less than Timeout
	defer cancel()
	got, err := client.Confirm(ctx, confirmKey, "pi_1", true)
	require.NoError(t, err)
	require.Equal(t, payments.StatusSucceeded, got.Status)
}

func TestConfirm_everyAttemptHangs(t *testing.T) {
	t.Parallel()
	url, _ := listen(t, func(conn *net.TCPConn) {
		readRequest(conn)
		_, _ = conn.Read(make([]byte, 1))
	})

	start := time.Now()
	short := func(cfg *payments.Config) { cfg.Timeout = 400 * time.Millisecond }
	e := confirmFailure(t, newClient(t, url, short))
	require.Equal(t, payments.Unknown, e.Outcome)
	require.ErrorIs(t, e, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 5*time.Second)
}

// net/http considers a POST with an idempotency key safe to resend when a reused connection
// breaks, so the provider would receive more requests than were counted (R13).
func TestSend_reusedConnectionBreaks(t *testing.T) {
	t.Parallel()
	http2 := new(http.Protocols)
	http2.SetUnencryptedHTTP2(true)
	for name, call := range map[string]func(*testing.T, *payments.Client) error{
		"confirm": func(t *testing.T, c *payments.Client) error {
			_, err := c.Confirm(t.Context(), confirmKey, "pi_1", true)
			return err
		},
		"cancel, without a body": func(t *testing.T, c *payments.Client) error {
			_, err := c.Cancel(t.Context(), "orders-api-7b0f-cancel", "pi_1")
			return err
		},
		"get": func(t *testing.T, c *payments.Client) error {
			_, err := c.Get(t.Context(), "pi_1")
			return err
		},
	} {
		for protocol, handle := range map[string]func(*net.TCPConn, func() bool){"HTTP/1.1": serveHTTP1, "HTTP/2": serveHTTP2} {
			t.Run(name+", "+protocol, func(t *testing.T) {
				t.Parallel()
				var received, attempts atomic.Int32
				first := func() bool { return received.Add(1) == 1 }
				url, _ := listen(t, func(conn *net.TCPConn) { handle(conn, first) })
				client := newClient(t, url, func(cfg *payments.Config) {
					cfg.Observe = func(payments.Attempt) { attempts.Add(1) }
					if protocol == "HTTP/2" {
						cfg.Transport = &http.Transport{Protocols: http2}
					}
				})
				if protocol == "HTTP/1.1" {
					_, err := client.Get(t.Context(), "pi_1")
					require.NoError(t, err)
				}
				e := failure(t, call(t, client))
				require.Equal(t, payments.Unknown, e.Outcome)
				require.Equal(t, attempts.Load(), received.Load())
			})
		}
	}
}

// serveHTTP1 responds to the first request. It reads every other request and then closes
// the connection, as if a proxy had lost the response.
func serveHTTP1(conn *net.TCPConn, first func() bool) {
	reader := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if !first() {
			return
		}
		respondIntent(conn, "requires_confirmation")
	}
}

// serveHTTP2 reads each request and resets its stream with PROTOCOL_ERROR, after which
// net/http sends any request again whose body it can rewind.
func serveHTTP2(conn *net.TCPConn, received func() bool) {
	const data, headers, resetStream, settings, endStream = 0, 1, 3, 4, 1
	_, _ = conn.Write([]byte{0, 0, 0, settings, 0, 0, 0, 0, 0})
	_, _ = io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	for {
		var frame [9]byte // length, type, flags and stream
		if _, err := io.ReadFull(conn, frame[:]); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, conn, int64(frame[0])<<16|int64(frame[1])<<8|int64(frame[2]))
		if (frame[3] == data || frame[3] == headers) && frame[4]&endStream != 0 {
			received()
			_, _ = conn.Write(append([]byte{0, 0, 4, resetStream, 0, frame[5], frame[6], frame[7], frame[8]}, 0, 0, 0, 1))
		}
	}
}

func TestConfirm_abortedHTTP2(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	client := newClient(t, server.URL, func(cfg *payments.Config) { cfg.Transport = server.Client().Transport })
	require.Equal(t, payments.Unknown, confirmFailure(t, client).Outcome)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestConfirm_transportWithoutTrace(t *testing.T) {
	t.Parallel()
	client := newClient(t, "", func(cfg *payments.Config) {
		cfg.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("lost: " + clientSecret)
		})
	})
	require.Equal(t, payments.Unknown, confirmFailure(t, client).Outcome)
}

// suspendedContext is the context of a call on a machine that was suspended: its
// deadline has passed, but its timer has not fired.
type suspendedContext struct{ context.Context }

func (suspendedContext) Deadline() (time.Time, bool) {
	return time.Now().Add(-24 * time.Hour).Round(0), true
}

func TestSend_machineSuspended(t *testing.T) {
	t.Parallel()
	provider := startProvider(t, response{status: 200, body: intent("succeeded")})
	client := newClient(t, provider.url)
	ctx := suspendedContext{t.Context()}
	_, confirmed := client.Confirm(ctx, confirmKey, "pi_1", true)
	_, refunded := client.Refund(ctx, "orders-api-7b0f-refund", payments.RefundParams{IntentID: "pi_1", Amount: 1, Currency: "eur"})
	for _, err := range []error{confirmed, refunded} {
		e := failure(t, err)
		require.Equal(t, payments.NotExecuted, e.Outcome)
		require.ErrorIs(t, e, context.DeadlineExceeded)
	}
	require.Empty(t, provider.seen())
}
