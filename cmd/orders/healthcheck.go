package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"example.com/orders-api/cmd/internal/setup"
)

// healthcheck is for containers, because the image has neither a shell nor curl. It uses
// no proxy and follows no redirects, so that no other server responds.
func healthcheck(ctx context.Context, call *invocation) error {
	var config setup.Listen
	timeout := call.flags.Duration("timeout", 3*time.Second, "how long to wait for the response")
	if err := call.load(&config, "timeout"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	target := readyURL(config.Addr)
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

func readyURL(address setup.Address) string {
	host, port, _ := net.SplitHostPort(string(address)) // checked by load
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1" // not localhost: an empty image resolves no names
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz"
}
