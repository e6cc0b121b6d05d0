package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"example.com/orders-api/cmd/internal/boot"
)

// healthEnv is the environment of orders healthcheck.
type healthEnv struct{ boot.Listen }

// healthcheck asks a running API whether it should get traffic. It is for
// containers, whose images have neither a shell nor curl.
func healthcheck(ctx context.Context, call invocation) error {
	var config healthEnv
	flags := call.flags()
	target := flags.String("url", "", "what to ask instead of /readyz at LISTEN_ADDR")
	timeout := flags.Duration("timeout", 3*time.Second, "how long to wait for the answer")
	if err := call.parse(flags, &config); err != nil {
		return err
	}
	if *timeout <= 0 {
		return wrongUsage(call.name, "--timeout %s is not a positive duration", *timeout)
	}
	if err := boot.Load(&config); err != nil {
		return err
	}
	if *target == "" {
		*target = readyURL(config.Addr)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	return askHealth(ctx, *target)
}

// readyURL is where a process that listens on address says whether it is ready,
// asked on the same machine: "" and 0.0.0.0 are addresses to listen on only.
func readyURL(address string) string {
	host, port, _ := net.SplitHostPort(address) // checked by Load
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // by its number, since an empty image resolves no names
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/readyz"}).String()
}

// askHealth returns an error unless the answer is 200. It goes through no proxy
// and follows nobody elsewhere: it is this one process that is asked.
func askHealth(ctx context.Context, target string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	response, err := new(http.Transport).RoundTrip(request)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not healthy: %s answers %s", target, response.Status)
	}
	return nil
}
