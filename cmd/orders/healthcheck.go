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

// healthcheck is for containers, because the image has neither a shell nor curl.
func healthcheck(ctx context.Context, call invocation) error {
	var config boot.Listen
	flags := call.flags()
	target := flags.String("url", "", "`URL` to request instead of /readyz at LISTEN_ADDR")
	timeout := flags.Duration("timeout", 3*time.Second, "how long to wait for the response")
	if err := call.load(flags, &config, "timeout"); err != nil {
		return err
	}
	if *target == "" {
		*target = readyURL(config.Addr)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	return checkReady(ctx, *target)
}

// readyURL returns the URL of /readyz of a process on this machine that listens on
// address.
func readyURL(address string) string {
	host, port, _ := net.SplitHostPort(address) // checked by Load
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // not localhost: an empty image resolves no names
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/readyz"}).String()
}

// checkReady returns an error unless the response is 200. It uses no proxy and follows no
// redirects, so that no other server responds.
func checkReady(ctx context.Context, target string) error {
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
		return fmt.Errorf("not healthy: %s returned %s", target, response.Status)
	}
	return nil
}
