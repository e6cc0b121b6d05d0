package console

import (
	"net"
	"net/http"
	"net/netip"
)

// policy lets the page load from and call its own server only. Inline scripts and
// styles are not allowed.
const policy = "default-src 'none'; " +
	"script-src 'self'; " +
	"style-src 'self'; " +
	"connect-src 'self'; " +
	"img-src 'self' data:; " +
	"base-uri 'none'; " +
	"form-action 'none'; " +
	"frame-ancestors 'none'"

// guard rejects requests that do not come from a person at this machine. The page
// places orders and shows an API key, and dev may listen on every interface.
//
//   - The connection must come from a loopback address and not through a proxy.
//   - The Host header must name this machine. Another name that resolves to it (DNS
//     rebinding) is rejected.
//   - An Origin header must name this origin, and a request that changes something
//     must have one. So other pages in the same browser cannot place orders.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		origin := r.Header.Get("Origin")
		switch {
		case !fromHere(r) || !localName(r.Host):
			refuse(w, "The console answers to this machine only, and by its own name. Open it at http://localhost, with the port that was printed.")
		case origin != "" && origin != "http://"+r.Host,
			origin == "" && r.Method != http.MethodGet && r.Method != http.MethodHead:
			refuse(w, "The console takes orders from its own page only.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func refuse(w http.ResponseWriter, why string) { http.Error(w, why, http.StatusForbidden) }

// fromHere reports whether the client is on this machine and no proxy.
func fromHere(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// localName reports whether a Host header names this machine, on any port.
func localName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil { // it has no port
		name = host
	}
	switch name {
	case "localhost", "127.0.0.1", "::1", "[::1]":
		return true
	}
	return false
}
