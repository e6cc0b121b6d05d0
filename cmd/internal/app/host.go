package app

import (
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
)

// privateHost matches an address, a name without a dot, and those of this machine and of Kubernetes.
var privateHost = regexp.MustCompile(`^[^.:]*$|^\d+(\.\d+){3}$|^[[:xdigit:]]*:[[:xdigit:]:.]*$|\.(localhost|svc|cluster\.local)$`)

// CheckHost is for listeners that require no credentials. It rejects a Host that could be in the public
// DNS, unless it is the name of this machine or the host of address, where the listener is. Otherwise a
// page on the internet could read their responses by DNS rebinding.
func CheckHost(address string, next http.Handler) http.Handler {
	machine, _ := os.Hostname() // "" if unknown, which is accepted in any case
	own := []string{hostname(machine), hostname(address)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostname(r.Host); !privateHost.MatchString(host) && !slices.Contains(own, host) {
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
