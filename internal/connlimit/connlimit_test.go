package connlimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/connlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	server *http.Server
	hold   chan struct{} // each request with a body waits for an element
	accept chan net.Conn
}

// serve runs a test in a synctest bubble, with pipes instead of sockets. Requests to /public are
// not verified, and those to /lookup last until they are cancelled.
func serve(t *testing.T, limit int, test func(*testing.T, fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := fixture{hold: make(chan struct{}), accept: make(chan net.Conn, 10)}
		f.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/public":
			case "/lookup":
				<-r.Context().Done()
			case "/large":
				connlimit.Verified(r.Context())
				_, _ = w.Write(make([]byte, 1<<20))
				return
			default:
				connlimit.Verified(r.Context())
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			if len(body) > 0 {
				<-f.hold
			}
			_, _ = fmt.Fprintf(w, "-%s", body)
		})}
		served := make(chan error, 1)
		go func() { served <- connlimit.Serve(f.server, f, limit) }()
		defer func() {
			_ = f.server.Close()
			require.ErrorIs(t, <-served, http.ErrServerClosed)
		}()
		test(t, f)
	})
}

func (f fixture) Accept() (net.Conn, error) {
	if conn, open := <-f.accept; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (f fixture) Addr() net.Addr { return &net.TCPAddr{} }

func (f fixture) Close() error {
	close(f.accept)
	return nil
}

type client struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func (f fixture) dial(t *testing.T) *client {
	t.Helper()
	near, far := net.Pipe()
	f.accept <- far
	t.Cleanup(func() { _ = near.Close() })
	require.NoError(t, near.SetDeadline(time.Now().Add(time.Minute)))
	return &client{near, t, bufio.NewReader(near)}
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

// requireClosed skips responses that were sent before.
func (c *client) requireClosed() {
	c.t.Helper()
	_, err := io.Copy(io.Discard, c.reader)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "still open")
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }

func post(path string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", path, length)
}

func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// At the limit, the unverified connections are closed in their order, whatever they do, and then
// the verified one that has waited longest.
func TestServe_order(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"nothing":     "",
		"half a body": post("/lookup", 10) + "half",
		"a lookup":    get("/lookup"),
		"pipelined":   get("/public") + get("/public"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serve(t, 6, func(t *testing.T, f fixture) {
				busy := f.dial(t).send(post("/", 4) + "busy")
				waiting := []*client{f.dial(t), f.dial(t)}
				for _, c := range waiting {
					c.send(get("/")).receive("-")
				}
				advance(time.Second)
				waiting[0].send(get("/")).receive("-")
				waiting[1].send(get("/public")).receive("-") // does not end the wait
				for _, o := range []*client{f.dial(t).send(sent), f.dial(t).send(sent)} {
					advance(time.Second)
					f.dial(t).send(get("/")).receive("-")
					o.requireClosed()
				}
				advance(time.Second)
				f.dial(t).send(get("/")).receive("-")
				waiting[1].requireClosed()
				waiting[0].send(get("/")).receive("-")
				f.hold <- struct{}{}
				busy.receive("-busy")
			})
		})
	}
}

func TestServe_burst(t *testing.T) {
	t.Parallel()
	serve(t, 2, func(t *testing.T, f fixture) {
		first, second := f.dial(t), f.dial(t)
		advance(49 * time.Millisecond)
		first.send(get("/")).receive("-")
		synctest.Wait() // until the server counts it as idle, before the second one
		second.send(get("/")).receive("-")
		advance(51 * time.Millisecond)
		first.requireClosed()
	})
}

func TestServe_allBusy(t *testing.T) {
	t.Parallel()
	serve(t, 2, func(t *testing.T, f fixture) {
		first, second := f.dial(t).send(post("/", 1)+"1"), f.dial(t).send(post("/", 1)+"2")
		third := f.dial(t)
		served := make(chan struct{})
		go func() {
			third.send(get("/")).receive("-")
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

func TestServe_shutdown(t *testing.T) {
	t.Parallel()
	serve(t, 1, func(t *testing.T, f fixture) {
		busy := f.dial(t).send(post("/", 1) + "1")
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- f.server.Shutdown(t.Context()) }()
		f.hold <- struct{}{}
		busy.receive("-1")
		require.NoError(t, <-stopped)
	})
}

// Beyond 32 MiB in memory, whoever has been slow for longest makes room, and the others stay.
func TestServe_memory(t *testing.T) {
	t.Parallel()
	const most = 32
	for name, begin := range map[string]func(*client) *client{
		"unread responses": func(c *client) *client {
			_, err := c.send(get("/large")).reader.Peek(1) // the rest is one Write of the server
			require.NoError(c.t, err)
			return c
		},
		"unverified bodies": func(c *client) *client {
			return c.send(post("/public", 2<<20) + strings.Repeat("x", 1<<20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serve(t, 100, func(t *testing.T, f fixture) {
				verified, unverified := f.dial(t).send(get("/")), f.dial(t)
				verified.receive("-")
				clients := make([]*client, most+5)
				for i := range clients {
					clients[i] = begin(f.dial(t))
					synctest.Wait()
				}
				for _, c := range clients[:5] {
					c.requireClosed()
				}
				for _, c := range append(clients[6:8], verified, unverified) {
					require.NoError(t, c.SetReadDeadline(time.Now()))
					_, err := c.reader.Peek(1)
					require.True(t, err == nil || os.IsTimeout(err), "closed: %v", err)
				}
			})
		})
	}
}

func TestServe_unreadResponse(t *testing.T) {
	t.Parallel()
	serve(t, 2, func(t *testing.T, f fixture) {
		c := f.dial(t).send(get("/"))
		advance(11 * time.Second)
		c.requireClosed()
	})
}

// Unverified connections together repeat a thousand requests a second. The others do not pause.
func TestServe_pause(t *testing.T) {
	t.Parallel()
	const connections = 50
	serve(t, connections+2, func(t *testing.T, f fixture) {
		verified := f.dial(t).send(get("/"))
		verified.receive("-")
		for range connections - 1 {
			f.dial(t)
		}
		outsider := f.dial(t).send(get("/public") + get("/public") + get("/public"))
		begin := time.Now()
		for i := range 3 {
			outsider.receive("-")
			require.Equal(t, time.Duration(i*connections)*time.Millisecond, time.Since(begin))
		}
		begin = time.Now()
		for range 3 {
			verified.send(get("/")).receive("-")
		}
		require.Zero(t, time.Since(begin))
	})
}
