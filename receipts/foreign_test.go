package receipts_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

// A mail server that stops answering, at any reply, holds a mail no longer than its limit, and cannot fill the
// memory.
func TestSMTP_foreignServer(t *testing.T) {
	t.Parallel()
	for name, endless := range map[string]string{
		"silence":                   "",
		"a line without an end":     "2",
		"a reply without an end":    "250-x\r\n",
		"300 MB in a line":          strings.Repeat("2", 1<<20),
		"300 MB in lines":           strings.Repeat("250-x\r\n", 1<<17),
		"300 MB, but another reply": strings.Repeat("599-x\r\n", 1<<17),
	} {
		for at, reply := range []string{"greeting", "EHLO", "MAIL", "RCPT", "DATA", "content", "QUIT"} {
			t.Run(name+" as reply to "+reply, func(t *testing.T) {
				t.Parallel()
				limit := 10 * time.Second
				if len(endless) < 10 {
					limit = 200 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				err := newSMTP(t, "smtp://"+foreignMailServer(t, at, endless)).Send(ctx, uuid.Nil, receipts.NewTestMessage(t, "Mug"))
				require.Equal(t, reply == "QUIT", err == nil, "the mail is accepted before QUIT: %v", err)
				require.Less(t, time.Since(start), 5*time.Second)
			})
		}
	}
	t.Run("silence instead of TLS", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, newSMTP(t, "smtps://"+foreignMailServer(t, 0, "")).Check(ctx), context.DeadlineExceeded)
	})
}

// foreignMailServer answers as a mail server does until the reply of this number, which has no end.
func foreignMailServer(t *testing.T, at int, endless string) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		received := bufio.NewReader(conn)
		for i, reply := range []string{"220 x", "250 x", "250 x", "250 x", "354 x", "250 x"} {
			if i == at {
				break
			}
			_, _ = io.WriteString(conn, reply+"\r\n")
			for line := ""; line == "" || i == 4 && line != ".\r\n"; {
				if line, err = received.ReadString('\n'); err != nil {
					return
				}
			}
		}
		for sent := 0; err == nil && endless != ""; sent += len(endless) {
			if sent > 300<<20 {
				t.Error("the client has read 300 MB")
				return
			}
			if len(endless) < 10 {
				<-time.After(time.Millisecond)
			}
			_, err = io.WriteString(conn, endless)
		}
		_, _ = io.Copy(io.Discard, received)
	}()
	return listener.Addr().String()
}
