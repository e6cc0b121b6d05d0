package payments_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

	"example.com/orders-api/internal/foreigntest"
	"example.com/orders-api/payments"
)

func listen(t *testing.T, handle func(*net.TCPConn)) (url string, connections *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	connections = new(atomic.Int32)
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
	return "http://" + listener.Addr().String(), connections
}

func readRequest(conn net.Conn) bool {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	return err == nil
}

func send(text string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, text)
	}
}

func ok(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

func TestTransport_connectionFaults(t *testing.T) {
	t.Parallel()
	reset := func(conn *net.TCPConn) { _ = conn.SetLinger(0) } // Close then sends RST
	for name, test := range map[string]struct {
		handle func(*net.TCPConn)
		cause  error
	}{
		"reset before the request was read": {func(conn *net.TCPConn) { _, _ = conn.Read(make([]byte, 1)); reset(conn) }, payments.ErrNoResponse},
		"reset after the request was read":  {func(conn *net.TCPConn) { readRequest(conn); reset(conn) }, syscall.ECONNRESET},
		"closed without a response":         {send(""), io.EOF},
		"body cut off":                      {send("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + intent("succeeded")), io.ErrUnexpectedEOF},
		"not HTTP":                          {send(clientSecret + "\r\n\r\n"), payments.ErrNoResponse},
		"malformed header line":             {send("HTTP/1.1 200 OK\r\n" + clientSecret + "\r\n\r\n"), payments.ErrNoResponse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, connections := listen(t, test.handle)
			e := confirmFailure(t, newClient(t, nil, at(url)))
			require.Equal(t, payments.Unknown, e.Outcome, e)
			require.ErrorIs(t, e, test.cause)
			require.False(t, e.NeedsOperator || e.SavedUnderKey)
			require.Positive(t, e.RetryDelay())
			require.EqualValues(t, 3, connections.Load())
		})
	}
}

func TestTransport_connectionRefused(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())

	e := confirmFailure(t, newClient(t, nil, at("http://"+listener.Addr().String())))
	require.Equal(t, payments.NotExecuted, e.Outcome)
	require.ErrorIs(t, e, payments.ErrNoResponse)
	require.ErrorIs(t, e, syscall.ECONNREFUSED)
	require.Equal(t, time.Second, e.RetryDelay())
}

func TestTransport_untrustedCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	e := confirmFailure(t, newClient(t, nil, at(server.URL)))
	require.Equal(t, payments.NotExecuted, e.Outcome)
	var untrusted *tls.CertificateVerificationError
	require.ErrorAs(t, e, &untrusted)
}

func TestTransport_cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url, connections := listen(t, func(conn *net.TCPConn) {
		readRequest(conn)
		cancel()
		_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
	})
	client := newClient(t, nil, at(url))
	_, err := client.Confirm(ctx, confirmKey, "pi_1", true)
	e := failure(t, err)
	require.Equal(t, payments.Unknown, e.Outcome, "after it was sent")
	require.ErrorIs(t, e, context.Canceled)

	_, err = client.Confirm(ctx, confirmKey, "pi_1", true)
	require.EqualError(t, failure(t, err), "payments: not_executed: no response: context canceled")
	require.EqualValues(t, 1, connections.Load())
}

func TestTransport_attemptHangs(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	url, _ := listen(t, func(conn *net.TCPConn) {
		readRequest(conn)
		if n.Add(1) == 1 {
			_, _ = conn.Read(make([]byte, 1))
			return
		}
		_, _ = io.WriteString(conn, ok(intent("succeeded")))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the caller has less than Timeout
	defer cancel()
	got, err := newClient(t, nil, at(url)).Confirm(ctx, confirmKey, "pi_1", true)
	require.NoError(t, err, "the second attempt has time for its response")
	require.Equal(t, payments.StatusSucceeded, got.Status)
}

// net/http considers a POST with an idempotency key safe to resend when a reused connection
// breaks, so the provider would receive more requests than were counted (R13).
func TestTransport_reusedConnectionBreaks(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"confirm", "cancel", "get"} { // a cancel has no body
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			var received, attempts atomic.Int32
			// It responds to the first request. It reads every other one and then closes the
			// connection, as if a proxy had lost the response.
			url, _ := listen(t, func(conn *net.TCPConn) {
				for readRequest(conn) && received.Add(1) == 1 {
					_, _ = io.WriteString(conn, ok(intent("requires_confirmation")))
				}
			})
			client := newClient(t, nil, at(url), func(cfg *payments.Config) {
				cfg.Observe = func(payments.HTTPAttempt) { attempts.Add(1) }
			})
			_, err := client.Get(t.Context(), "pi_1")
			require.NoError(t, err)
			require.Equal(t, payments.Unknown, failure(t, calls()[call](t.Context(), client)).Outcome)
			require.Equal(t, attempts.Load(), received.Load())
		})
	}
}

func TestTransport_abortedHTTP2(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	client := newClient(t, server.Client().Transport, at(server.URL))
	require.Equal(t, payments.Unknown, confirmFailure(t, client).Outcome)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport_withoutTrace(t *testing.T) {
	t.Parallel()
	client := newClient(t, roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("lost: " + clientSecret)
	}))
	require.Equal(t, payments.Unknown, confirmFailure(t, client).Outcome)
}

// suspendedContext is the context of a call on a machine that was suspended: its
// deadline has passed, but its timer has not fired.
type suspendedContext struct{ context.Context }

func (suspendedContext) Deadline() (time.Time, bool) {
	return time.Now().Add(-24 * time.Hour).Round(0), true
}

func TestTransport_machineSuspended(t *testing.T) {
	t.Parallel()
	provider := respond(response{status: 200, body: intent("succeeded")})
	_, err := newClient(t, provider).Confirm(suspendedContext{t.Context()}, confirmKey, "pi_1", true)
	e := failure(t, err)
	require.Equal(t, payments.NotExecuted, e.Outcome)
	require.ErrorIs(t, e, context.DeadlineExceeded)
	require.Empty(t, provider.seen())
}

// No retry can help a request that cannot be built, such as that of a secret with a newline.
func TestTransport_invalidRequest(t *testing.T) {
	t.Parallel()
	const notSent = "payments: not_executed: not sent, because the API key, the base URL or the provider key is not valid in a request"
	for name, change := range map[string]func(*payments.Config){
		"newline in the API key": func(c *payments.Config) { c.SecretKey = secretKey + "\n" },
		"NUL in the API key":     func(c *payments.Config) { c.SecretKey = secretKey + "\x00" },
		"newline in the URL":     at("http://" + canary + ".invalid\n"),
		"not a URL":              at("http://" + canary + ".invalid:port"),
		"no scheme":              at(canary + ".invalid"),
		"another scheme":         at("ftp://" + canary + ".invalid"),
	} {
		client := newClient(t, nil, change)
		_, unread := client.Get(t.Context(), "pi_1")
		_, _, unlisted := client.List(t.Context(), time.Time{}, "")
		for _, e := range []*payments.Error{confirmFailure(t, client), failure(t, unread), failure(t, unlisted)} {
			require.True(t, e.NeedsOperator, name)
			require.EqualError(t, e, notSent, name)
		}
	}
	provider := respond(response{status: 200, body: intent("succeeded")})
	for _, key := range []string{"", " spaces "} {
		_, err := newClient(t, provider).Confirm(t.Context(), key, "pi_1", true)
		require.EqualError(t, failure(t, err), notSent)
		require.True(t, failure(t, err).NeedsOperator)
	}
	require.Empty(t, provider.seen())
}

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
		"confirm_on_session": func(ctx context.Context, c *payments.Client) error {
			_, err := c.Confirm(ctx, confirmKey, "pi_1", false)
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

const endless = "300 MB"

// A server that is not Stripe, such as a gateway, holds no call for longer than its time, and its response
// proves nothing.
func TestTransport_foreignServer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusPaymentRequired} {
		answers := foreigntest.Answers(t, status)
		delete(answers, endless) // see TestTransport_endlessBody
		for name, answer := range answers {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				t.Parallel()
				server := httptest.NewServer(answer)
				t.Cleanup(server.Close)
				client := newClient(t, nil, at(server.URL), func(c *payments.Config) { c.Timeout = time.Second })
				start := time.Now()
				var running sync.WaitGroup
				var failures sync.Map
				for call, send := range calls() {
					running.Go(func() { failures.Store(call, send(t.Context(), client)) })
				}
				running.Wait()
				require.Less(t, time.Since(start), foreigntest.Held)
				for call := range calls() {
					err, _ := failures.Load(call)
					e := failure(t, err.(error))
					require.Equal(t, payments.Unknown, e.Outcome, call)
					require.False(t, e.SavedUnderKey, call)
				}
			})
		}
	}
}

// A body that is larger than its limit is not read to its end.
func TestTransport_endlessBody(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"confirm", "refund", "get", "list"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(foreigntest.Answers(t, http.StatusOK)[endless])
			t.Cleanup(server.Close)
			client := newClient(t, nil, at(server.URL), func(c *payments.Config) { c.Timeout = 4 * time.Second })
			require.Equal(t, payments.Unknown, failure(t, calls()[call](t.Context(), client)).Outcome)
		})
	}
}

// Only 200 is a success. A body with another status is not read as one, and no redirect is followed (R31).
func TestTransport_otherStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{101, 102, 103, 199, 201, 202, 203, 204, 205, 206, 226, 299, 300, 301, 302, 303, 304, 307, 308, 399} {
		first := response{status: status, body: intent("succeeded"), header: http.Header{"Location": {"/elsewhere"}}}
		isRedirect := status >= http.StatusMultipleChoices
		then := first
		if isRedirect {
			then = response{status: http.StatusOK, body: intent("succeeded")}
		}
		for call, send := range calls() {
			gateway := respond(first, then)
			e := failure(t, send(t.Context(), newClient(t, gateway)))
			require.Equal(t, payments.Unknown, e.Outcome, "%d, %s", status, call)
			require.ErrorIs(t, e, payments.ErrUnreadable, "%d, %s", status, call)
			require.Equal(t, isRedirect, e.NeedsOperator, "%d, %s", status, call)
			require.Equal(t, isRedirect, len(gateway.seen()) == 1, "%d, %s", status, call)
		}
	}
}
