//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

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
