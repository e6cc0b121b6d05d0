package connlimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/connlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, l net.Listener, limit int, handler http.HandlerFunc) *http.Server {
	t.Helper()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- connlimit.Serve(server, l, limit) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return server
}

type client struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func newClient(t *testing.T, conn net.Conn) *client {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return &client{conn, t, bufio.NewReader(conn)}
}

func (c *client) send(text string) *client {
	c.t.Helper()
	_, err := io.WriteString(c.Conn, text)
	require.NoError(c.t, err)
	return c
}

func (c *client) receive(want string) {
	c.t.Helper()
	response, err := http.ReadResponse(c.reader, nil)
	require.NoError(c.t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, response.Body.Close())
	require.Equal(c.t, want, string(body))
}

func (c *client) requireClosed() {
	c.t.Helper()
	_, err := c.reader.ReadByte()
	require.Error(c.t, err)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "still open")
}

const (
	get    = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	public = "GET /public HTTP/1.1\r\nHost: a\r\n\r\n"
	lookup = "GET /lookup HTTP/1.1\r\nHost: a\r\n\r\n"
)

func post(length int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", length)
}

// holding responds with the request's body, and waits for hold if there is one. Requests to
// /public and /lookup are not verified. One to /lookup lasts until it is cancelled.
func holding(hold chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/public":
		case "/lookup":
			<-r.Context().Done()
		default:
			connlimit.Verified(r.Context())
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if len(body) > 0 {
			<-hold
		}
		_, _ = fmt.Fprintf(w, "-%s", body)
	}
}

func TestServe_idleConnections(t *testing.T) {
	t.Parallel()
	const limit = 50
	for name, first := range map[string]string{
		"nothing sent": "",
		"kept alive":   get,
		"half a body":  post(10) + "half",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			hold := make(chan struct{})
			serve(t, l, limit, holding(hold))
			dial := func() *client {
				conn, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				return newClient(t, conn)
			}
			busy := dial().send(post(4) + "busy")
			flood := make([]*client, 3*limit)
			for i := range flood {
				flood[i] = dial().send(first)
				if first == get {
					flood[i].receive("-")
				}
			}
			begin := time.Now()
			dial().send(get).receive("-")
			require.Less(t, time.Since(begin), time.Second)
			flood[0].requireClosed()
			hold <- struct{}{}
			busy.receive("-busy")
		})
	}
}

// bubble runs a test in a synctest bubble, with pipes instead of sockets.
func bubble(t *testing.T, limit int, test func(*testing.T, fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{accept: make(chan net.Conn, 10)}
		hold := make(chan struct{})
		test(t, fixture{
			server: serve(t, l, limit, holding(hold)),
			hold:   hold,
			dial: func() *client {
				near, far := net.Pipe()
				l.accept <- far
				return newClient(t, near)
			},
		})
	})
}

type fixture struct {
	server *http.Server
	hold   chan struct{} // see holding
	dial   func() *client
}

func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestServe_longestFirst(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, f fixture) {
		clients := make([]*client, 5)
		for i := range clients {
			clients[i] = f.dial().send(get)
			clients[i].receive("-")
			if i == 2 {
				advance(time.Second)
				clients[0].send(get).receive("-")
			}
			advance(time.Second)
		}
		clients[1].requireClosed()
		clients[2].requireClosed()
		for _, i := range []int{0, 3, 4} {
			clients[i].send(get).receive("-")
		}
	})
}

func TestServe_burst(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, f fixture) {
		first, second, third := f.dial(), f.dial(), f.dial()
		advance(49 * time.Millisecond)
		first.send(get).receive("-")
		advance(time.Millisecond)
		third.send(get).receive("-")
		second.requireClosed()
		first.send(get).receive("-")
	})
}

func TestServe_allBusy(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, f fixture) {
		first, second := f.dial().send(post(1)+"1"), f.dial().send(post(1)+"2")
		third := f.dial()
		served := make(chan struct{})
		go func() {
			third.send(get).receive("-")
			close(served)
		}()
		advance(5 * time.Second)
		select {
		case <-served:
			require.Fail(t, "a third connection is served")
		default:
		}
		f.hold <- struct{}{}
		f.hold <- struct{}{}
		first.receive("-1")
		second.receive("-2")
		<-served
	})
}

func TestServe_slowBody(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, f fixture) {
		slow := f.dial()
		for _, part := range []string{"POST / HTTP/1.1\r\nHost: a\r\n", "Content-Length: 4\r\n\r\n", "b", "o", "dy"} {
			slow.send(part)
			advance(time.Second)
		}
		next := f.dial()
		advance(time.Second)
		f.hold <- struct{}{}
		slow.receive("-body")
		next.send(get).receive("-")
		slow.requireClosed()
	})
}

func TestServe_closedBeforeTheLastByte(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, f fixture) {
		slow := f.dial().send(post(2) + "b")
		advance(time.Second)
		f.dial().send(get).receive("-")
		_, err := slow.Write([]byte("o"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
		synctest.Wait()
		select {
		case f.hold <- struct{}{}:
			require.Fail(t, "the request runs")
		default:
		}
	})
}

func TestServe_stalledReader(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, f fixture) {
		stalled := f.dial().send(get)
		synctest.Wait() // the server is in Write, because nothing reads from the pipe
		begin := time.Now()
		f.dial().send(get).receive("-")
		require.Equal(t, 5*time.Second, time.Since(begin))
		stalled.requireClosed()
	})
}

func TestServe_shutdown(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, f fixture) {
		busy := f.dial().send(post(1) + "1")
		next := f.dial()
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- f.server.Shutdown(t.Context()) }()
		next.requireClosed()
		f.hold <- struct{}{}
		busy.receive("-1")
		require.NoError(t, <-stopped)
	})
}

func TestServe_unverified(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"a lookup":    lookup,
		"pipelined":   public + public,
		"a slow body": "POST /lookup HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx",
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
					_, err := io.ReadAll(o.reader) // skips responses that were sent before
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still open")
				}
			})
		})
	}
}

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

// pipes is a listener without sockets, for a synctest bubble.
type pipes struct{ accept chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	conn, open := <-p.accept
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p *pipes) Close() error {
	close(p.accept)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
