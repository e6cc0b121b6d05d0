package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"example.com/orders-api/cmd/internal/setup"
)

// healthcheck is for containers, because the image has no shell. It uses no proxy and follows
// no redirects, so that no other server responds.
func healthcheck(ctx context.Context, call *invocation) error {
	var config setup.Listen
	timeout := call.flags.Duration("timeout", 3*time.Second, "how long to wait for the response")
	if err := call.load(&config, "timeout"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	target := baseURL(string(config.Addr), "127.0.0.1") + "/readyz" // an empty image does not resolve localhost
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
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

// baseURL returns the URL of a listener for a client on this machine, which loopback names.
func baseURL(address, loopback string) string {
	host, port, _ := net.SplitHostPort(address) // valid
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = loopback
	}
	return "http://" + net.JoinHostPort(host, port)
}
