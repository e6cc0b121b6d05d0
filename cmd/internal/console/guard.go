package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/netip"

	"example.com/orders-api/cmd/internal/hostcheck"
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
//   - The browser must have opened [Console.URL] once, which sets a cookie. Otherwise
//     other users of this machine could connect, and so could the clients of a proxy
//     that sets Host to localhost and adds no header.
func (c *Console) guard(next http.Handler) http.Handler {
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
		case !fromHere(r) || !hostcheck.IsLoopback(r.Host):
			refuse(w, "The console answers to this machine only, and by its own name. Open it at http://localhost, with the port that was printed.")
		case origin != "" && origin != "http://"+r.Host,
			origin == "" && r.Method != http.MethodGet && r.Method != http.MethodHead:
			refuse(w, "The console takes orders from its own page only.")
		case r.Method == http.MethodGet && r.URL.Path == Path && c.isToken(r.URL.Query().Get("token")):
			http.SetCookie(w, &http.Cookie{ // not Secure, because dev has no TLS
				Name: cookieName, Value: token(c.APIKey), Path: Path, HttpOnly: true, SameSite: http.SameSiteStrictMode,
			})
			http.Redirect(w, r, Path, http.StatusSeeOther) // without the token
		case !c.hasCookie(r):
			refuse(w, "The console shows an API key, so it needs a token. Open the URL that orders dev prints after \"Console\".")
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

// cookieName is the name of the cookie that has the token.
const cookieName = "orders_console"

// URL returns the URL that opens the page of a server. It contains a token.
func (c *Console) URL(server string) string { return server + Path + "?token=" + token(c.APIKey) }

// token returns the secret of the page. It is derived from the API key, so that a page
// keeps working when dev is restarted.
func token(apiKey string) string {
	mac := hmac.New(sha256.New, []byte(apiKey))
	mac.Write([]byte("console"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func (c *Console) isToken(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(token(c.APIKey))) == 1
}

func (c *Console) hasCookie(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName)
	return err == nil && c.isToken(cookie.Value)
}
