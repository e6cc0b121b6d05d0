package demo

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"example.com/orders-api/cmd/playground/internal/docs"
)

// policy allows neither other servers nor inline scripts nor inline styles.
const policy = "default-src 'none'; " +
	"script-src 'self'; " +
	"style-src 'self'; " +
	"connect-src 'self'; " +
	"img-src 'self' data:; " +
	"base-uri 'none'; " +
	"form-action 'none'; " +
	"frame-ancestors 'none'"

// guard rejects requests of other users and machines, because the page charges orders.
func (c *Console) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		privateHeader(w.Header())
		switch reason := c.rejects(r); {
		case c.opens(w, r, pagePath):
		case reason != "":
			http.Error(w, reason, http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func privateHeader(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// rejects returns the reason to reject a request, or "". The check of Host prevents DNS rebinding, and
// that of Origin cross-site requests. The cookie excludes other users of this machine. It also excludes
// requests through a proxy that sets Host to localhost and adds no header.
func (c *Console) rejects(r *http.Request) string {
	cookie, err := r.Cookie(cookieName)
	switch {
	case !isLocal(r):
		return "The console accepts connections from this machine only, under the name localhost or a loopback address."
	case !isSameOrigin(r):
		return "The console takes orders from its own page only."
	case err != nil || !c.isToken(cookie.Value):
		return "The console needs a token. Open the URL that playground run prints after \"Console\"."
	default:
		return ""
	}
}

// opens sets the cookie if the URL has the token, redirects to the URL without it, and reports whether
// it did.
func (c *Console) opens(w http.ResponseWriter, r *http.Request, path string) bool {
	if r.Method != http.MethodGet || r.URL.Path != path || !isLocal(r) || !isSameOrigin(r) || !c.isToken(r.URL.Query().Get("token")) {
		return false
	}
	http.SetCookie(w, &http.Cookie{ // not Secure, because the playground has no TLS
		Name: cookieName, Value: token(c.APIKey), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	privateHeader(w.Header())
	http.Redirect(w, r, path, http.StatusSeeOther)
	return true
}

func isLocal(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && isLoopback(r.Host)
}

// isLoopback reports whether a Host header is localhost or a loopback address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, _ := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || ip.Unmap().IsLoopback()
}

func isSameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return origin == "http://"+r.Host || origin == "" && reads
}

const cookieName = "orders_console"

// URL returns the URL of the console with its token.
func (c *Console) URL() string { return c.BaseURL + pagePath + "?token=" + token(c.APIKey) }

// DocsURL returns a URL of the API's documentation that sets the cookie, so that the page has the API key.
func (c *Console) DocsURL() string { return c.BaseURL + docs.Path + "?token=" + token(c.APIKey) }

// token derives the token from the API key, so that an open page still works after a restart.
func token(apiKey string) string {
	mac := hmac.New(sha256.New, []byte(apiKey))
	mac.Write([]byte("console"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func (c *Console) isToken(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(token(c.APIKey))) == 1
}

// docs serves the API's documentation, and adds the API key to it if the request has the cookie.
func (c *Console) docs(w http.ResponseWriter, r *http.Request, api http.Handler) {
	switch {
	case c.opens(w, r, docs.Path):
	case c.rejects(r) != "":
		api.ServeHTTP(w, r)
	default:
		privateHeader(w.Header())
		docs.WritePage(w, c.APIKey)
	}
}
