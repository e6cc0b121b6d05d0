// Package hostcheck checks the Host header at listeners that require no credentials.
// Otherwise a page on the internet could read their responses by DNS rebinding.
package hostcheck

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// Serve serves handler at a loopback address until stop is called, and logs nothing.
func Serve(ctx context.Context, handler http.Handler) (url string, stop func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address := listener.Addr().String()
	server := &http.Server{Handler: Handler(address, handler), ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	return "http://" + address, server.Close, nil
}

// Handler rejects a Host that could be in the public DNS, unless it is the name of this machine
// or the host of address, where the listener is.
func Handler(address string, next http.Handler) http.Handler {
	machine, _ := os.Hostname() // "" if unknown, which is accepted in any case
	own := []string{hostname(machine), hostname(address)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostname(r.Host); !isPrivate(host) && !slices.Contains(own, host) {
			http.Error(w, "Unknown host name: use an IP address, or listen on an address with this name.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// IsLoopback reports whether a Host header is localhost or a usual loopback address.
func IsLoopback(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, hostname(host))
}

func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isPrivate(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc([]string{".localhost", ".svc", ".cluster.local"}, func(suffix string) bool {
		return strings.HasSuffix(host, suffix)
	})
}
