// Package foreigntest has answers of servers other than the expected one, such as a gateway, for the tests of
// each client.
package foreigntest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Held is how long an answer lasts that the client does not end. A call with a shorter limit must not take as
// long.
const Held = 10 * time.Second

// Answers returns the answers by name. Those that are not 101 have this status, and begin like JSON.
func Answers(t *testing.T, status int) map[string]http.HandlerFunc {
	head := fmt.Sprintf("HTTP/1.1 %d Foreign\r\nContent-Type: application/json\r\n", status)
	return map[string]http.HandlerFunc{
		"101, and the connection stays open": hijacked(t, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", ""),
		"101 with a body":                    hijacked(t, "HTTP/1.1 101 Switching Protocols\r\nContent-Type: application/json\r\n\r\n{\"id\":\"1\"}", " "),
		"no answer":                          hijacked(t, "", ""),
		"headers without an end":             hijacked(t, head, "X: 1\r\n"),
		"a body without an end":              hijacked(t, head+"\r\n{\"id\":\"1\"}", " "),
		"interim answers without an end":     hijacked(t, "", "HTTP/1.1 103 Early Hints\r\n\r\n"),
		"300 MB": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"id":"1"}`)
			spaces := strings.Repeat(" ", 1<<20)
			for range 300 {
				if _, err := io.WriteString(w, spaces); err != nil {
					return
				}
			}
			t.Error("the client has read 300 MB")
		},
	}
}

// hijacked sends the beginning, and then the rest once a millisecond until the client closes the connection.
func hijacked(t *testing.T, beginning, rest string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(Held))
		_, _ = io.WriteString(conn, beginning)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = io.Copy(io.Discard, conn)
		}()
		drip(conn, rest, closed)
		<-closed
	}
}

func drip(conn net.Conn, rest string, closed <-chan struct{}) {
	for tick := time.Tick(time.Millisecond); rest != ""; {
		select {
		case <-closed:
			return
		case <-tick:
			_, _ = io.WriteString(conn, rest)
		}
	}
}
