package stripetest

import (
	"net"
	"net/http"
	"os"
	"regexp"
)

// privateHost matches an address, a name without a dot, and those of this machine and of Kubernetes.
const privateHost = `[^.:]*|\d+(\.\d+){3}|\[[[:xdigit:]:.]*\]|[^:]*\.(localhost|svc|cluster\.local)`

// CheckHost is for listeners that require no credentials. It rejects a Host that could be in the public
// DNS, unless it is the name of this machine or the host of address, where the listener is. Otherwise a
// page on the internet could read their responses by DNS rebinding.
func CheckHost(address string, next http.Handler) http.Handler {
	machine, _ := os.Hostname() // "" if unknown, which is accepted in any case
	named, _, _ := net.SplitHostPort(address)
	accepted := regexp.MustCompile(`(?i)^(` + privateHost + `|` + regexp.QuoteMeta(machine) + `|` + regexp.QuoteMeta(named) + `)\.?(:\d+)?$`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepted.MatchString(r.Host) {
			http.Error(w, "Unknown host name: use an IP address, or listen on an address with this name.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
