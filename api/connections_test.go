package api_test

import (
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/internal/connlimit"
)

// At the limit, new connections do not close one whose order is in progress, although
// those of outsiders may be closed.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := api.NewServer(f.router, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- connlimit.Serve(server, l, 2) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	f.url = "http://" + l.Addr().String()

	held, running := f.createHeld(t, newKey(), orderBody())
	for range 3 {
		f.rejectedOutsider(t)
	}
	held.Release()
	require.Equal(t, http.StatusCreated, receive(t, running).status)
}

// rejectedOutsider sends a wrong key on a connection that stays open. On a busy machine, it is closed
// before the response, because the limit gives an outsider only 50 ms.
func (f *fixture) rejectedOutsider(t *testing.T) {
	t.Helper()
	for range 50 {
		outsider := f.dial(t)
		outsider.write("GET /v1/orders HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ok_AAAAAAAAAAAAAAAAAAAAAAAAAA\r\n\r\n")
		if response, err := http.ReadResponse(outsider.reader, nil); err == nil {
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusUnauthorized, response.StatusCode)
			return
		}
	}
	require.Fail(t, "no outsider was answered")
}
