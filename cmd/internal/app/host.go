package app

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// CheckHost is for listeners that require no credentials. It rejects a Host that could be in the public
// DNS, unless it is the name of this machine or the host of address, where the listener is. Otherwise a
// page on the internet could read their responses by DNS rebinding.
func CheckHost(address string, next http.Handler) http.Handler {
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
