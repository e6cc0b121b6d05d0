//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
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

const (
	// interval is the time between two probes of a kind.
	interval = 100 * time.Millisecond

	// probeTimeout is the latency of a probe that got no response.
	probeTimeout = 10 * time.Second
)

// result has the latencies of the probes of one kind.
type result struct {
	name      string
	latencies []time.Duration // in ascending order
	worstAt   time.Duration   // since the start
	errors    map[string]int
}

func (r *result) add(at, latency time.Duration, err error) {
	if err != nil {
		r.errors[err.Error()]++
	}
	if len(r.latencies) == 0 || latency > slices.Max(r.latencies) {
		r.worstAt = at
	}
	r.latencies = append(r.latencies, latency)
}

func (r result) failed() bool {
	return len(r.latencies) == 0 || len(r.errors) > 0 || r.latencies[len(r.latencies)-1] > maxLatency
}

func (r result) String() string {
	n := len(r.latencies)
	if n == 0 {
		return r.name + ": no probes"
	}
	text := fmt.Sprintf("%s: %d probes on new connections, p50 %s, p99 %s, worst %s at %s", r.name, n,
		r.latencies[n/2].Round(100*time.Microsecond), r.latencies[n*99/100].Round(100*time.Microsecond),
		r.latencies[n-1].Round(100*time.Microsecond), r.worstAt)
	for err, count := range r.errors {
		text += fmt.Sprintf("\n  %d: %s", count, err)
	}
	return text
}

// probeAll probes at a constant rate, independent of the responses. The latency counts
// from the due time.
func probeAll(ctx context.Context, address string, apiKeys []string, duration time.Duration) []result {
	health := result{name: "/healthz", errors: map[string]int{}}
	valid := result{name: "valid unseen keys", errors: map[string]int{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	probe := func(r *result, due time.Time, path, apiKey string) {
		all.Go(func() {
			err := send(ctx, "http://"+address+path, apiKey)
			latency := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			r.add(due.Sub(begin), latency, err)
		})
	}
	for i := 0; ctx.Err() == nil && time.Duration(i)*interval < duration; i++ {
		due := begin.Add(time.Duration(i) * interval)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
		}
		probe(&health, due, "/healthz", "")
		probe(&valid, due, "/v1/orders?limit=1", apiKeys[i])
	}
	all.Wait()
	slices.Sort(health.latencies)
	slices.Sort(valid.latencies)
	return []result{health, valid}
}

func send(ctx context.Context, url, apiKey string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if apiKey != "" {
		request.Header.Set("Authorization", "Bearer "+apiKey)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			err = failed.Err // without the port, which differs
		}
		return fmt.Errorf("no response: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
