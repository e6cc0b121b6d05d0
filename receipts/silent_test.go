package receipts_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/receipts"
)

// A mail server that stops answering, at any reply, holds a mail no longer than its limit.
func TestSMTP_silentServer(t *testing.T) {
	t.Parallel()
	for at, reply := range []string{"greeting", "EHLO", "MAIL", "RCPT", "DATA", "content", "QUIT"} {
		t.Run(reply, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := newSMTP(t, "smtp://"+silentMailServer(t, at)).Send(ctx, uuid.Nil, receipts.NewTestMessage(t, "Mug"))
			require.Equal(t, reply == "QUIT", err == nil, "the mail is accepted before QUIT: %v", err)
			require.Less(t, time.Since(start), 5*time.Second)
		})
	}
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, newSMTP(t, "smtps://"+silentMailServer(t, 0)).Check(ctx), context.DeadlineExceeded)
	})
}

// silentMailServer answers as a mail server does until the reply of this number.
func silentMailServer(t *testing.T, at int) (address string) {
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
		for i, reply := range []string{"220 x", "250 x", "250 x", "250 x", "354 x", "250 x"}[:at] {
			_, _ = io.WriteString(conn, reply+"\r\n")
			for line := ""; line == "" || i == 4 && line != ".\r\n"; {
				if line, err = received.ReadString('\n'); err != nil {
					return
				}
			}
		}
		_, _ = io.Copy(io.Discard, received)
	}()
	return listener.Addr().String()
}
