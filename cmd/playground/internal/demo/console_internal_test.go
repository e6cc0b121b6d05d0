package demo

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func newSite(t *testing.T) (*Console, http.Handler) {
	t.Helper()
	c := &Console{
		system: &system{Options: Options{APIKey: "ok_TEST", BaseURL: "http://localhost:8080"}},
		logger: slog.New(slog.DiscardHandler),
		starts: make(chan scenario),
	}
	return c, c.Mount(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the API") }))
}

func request(t *testing.T, site http.Handler, method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost:8080"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:50000"
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://localhost:8080")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.AddCookie(&http.Cookie{Name: cookieName, Value: token("ok_TEST")})
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	site.ServeHTTP(w, r)
	return w
}

func withCookie(token string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del("Cookie")
		if token != "" {
			r.AddCookie(&http.Cookie{Name: cookieName, Value: token})
		}
	}
}

// requirePolicy requires that the response runs and embeds nothing of another origin.
func requirePolicy(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'", w.Header().Get("Content-Security-Policy"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
}

func TestPage(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	for path, contentType := range map[string]string{
		"/console":             "text/html; charset=utf-8",
		"/console/console.css": "text/css; charset=utf-8",
		"/console/console.js":  "text/javascript; charset=utf-8",
	} {
		for name, change := range map[string]func(*http.Request){
			"by name":                 nil,
			"by number":               func(r *http.Request) { r.Host = "127.0.0.1:8080" },
			"by number, IPv6":         func(r *http.Request) { r.Host = "[::1]:8080" },
			"from this machine, IPv6": func(r *http.Request) { r.RemoteAddr = "[::1]:50000" },
		} {
			w := request(t, site, http.MethodGet, path, "", change)
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", name, path)
			require.Equal(t, contentType, w.Header().Get("Content-Type"))
			requirePolicy(t, w)
			require.NotRegexp(t, `https?://`, strings.ReplaceAll(w.Body.String(), "http://localhost:8080", ""), "no other origin is called")
		}
	}
	page := request(t, site, http.MethodGet, "/console", "", nil).Body.String()
	require.NotRegexp(t, regexp.MustCompile(`(?i)<style|style=|<script>|<script [^>]*></script>.*<script|\son[a-z]+=`), page, "nothing that the policy forbids")
	for _, path := range []string{"/v1/orders", "//console"} {
		require.Contains(t, request(t, site, http.MethodGet, path, "", nil).Body.String(), "the API", path)
	}
	require.NotEqual(t, http.StatusOK, request(t, site, http.MethodGet, "/console/../v1", "", nil).Code)

	for path, url := range map[string]string{"/console": c.URL(), "/docs": c.DocsURL()} {
		require.NotContains(t, url, "ok_TEST")
		first := request(t, site, http.MethodGet, strings.TrimPrefix(url, "http://localhost:8080"), "", withCookie(""))
		require.Equal(t, http.StatusSeeOther, first.Code)
		require.Equal(t, path, first.Header().Get("Location"))
		require.Equal(t, "no-referrer", first.Header().Get("Referrer-Policy"))
		require.Equal(t, []string{cookieName + "=" + token("ok_TEST") + "; Path=/; HttpOnly; SameSite=Strict"}, first.Header()["Set-Cookie"])
	}
	docs := request(t, site, http.MethodGet, "/docs", "", nil)
	require.Contains(t, docs.Body.String(), `<meta name="api-key" content="ok_TEST"></head>`)
	require.Equal(t, "no-store", docs.Header().Get("Cache-Control"))
	require.Equal(t, "same-origin", docs.Header().Get("Cross-Origin-Resource-Policy"))
}

// Without the cookie of a URL that was printed here, no request of this or another machine gets anything but
// the API, and none from another machine or page gets the cookie.
func TestPage_forbidden(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	c, site := newSite(t)
	for name, change := range map[string]func(*http.Request){
		"no cookie":                         withCookie(""),
		"cookie of another API key":         withCookie(token("ok_OTHER")),
		"from another machine":              func(r *http.Request) { r.RemoteAddr = "192.0.2.7:50000" },
		"a name that resolves to loopback":  host("rebound.example:8080"),
		"a name that begins with localhost": host("localhost.example:8080"),
		"a name that ends with localhost":   host("x.localhost:8080"),
		"no name":                           host(""),
		"through a proxy":                   header("X-Forwarded-For", "192.0.2.7"),
		"another page":                      header("Origin", "http://evil.example"),
		"a page of another local port":      header("Origin", "http://localhost:3000"),
	} {
		paths := []string{"/console", "/console?token=", "/console?token=x", "/console?token=" + token("ok_OTHER"), "/console/play", "/console/console.js"}
		if !strings.Contains(name, "cookie") { // which the right token gets
			paths = append(paths, strings.TrimPrefix(c.URL(), "http://localhost:8080"), "/console/nothing")
			url := strings.TrimPrefix(c.DocsURL(), "http://localhost:8080")
			require.Empty(t, request(t, site, http.MethodGet, url, "", change).Header()["Set-Cookie"], name)
		}
		for _, path := range paths {
			w := request(t, site, http.MethodGet, path, "", change)
			require.Equal(t, http.StatusForbidden, w.Code, "%s: %s", name, path)
			require.NotContains(t, w.Body.String(), "ok_TEST")
			require.Empty(t, w.Header()["Set-Cookie"])
			requirePolicy(t, w)
		}
		w := request(t, site, http.MethodPost, "/console/play?token="+token("ok_TEST"), "card=pm_card_visa&fault=none", change)
		require.Equal(t, http.StatusForbidden, w.Code, "only a cookie of the same site authorizes an order")
		require.Equal(t, "the API", request(t, site, http.MethodGet, "/docs", "", change).Body.String(), "only with a cookie the page has the API key")
	}
	require.Contains(t, request(t, site, http.MethodGet, "/console", "", withCookie("")).Body.String(), "the URL that playground run prints")
}

// Only the console's own page starts an order or decides about one.
func TestPost(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	const card = "card=pm_card_visa&fault=none"
	for name, test := range map[string]struct {
		path, body string
		change     func(*http.Request)
		status     int
	}{
		"no Origin":            {"/console/play", card, func(r *http.Request) { r.Header.Del("Origin") }, http.StatusForbidden},
		"another page":         {"/console/play", card, func(r *http.Request) { r.Header.Set("Origin", "https://localhost:8080") }, http.StatusForbidden},
		"an unknown card":      {"/console/play", "card=pm_card_x&fault=none", nil, http.StatusUnprocessableEntity},
		"no fake":              {"/console/play", "card=pm_card_visa&fault=error", nil, http.StatusUnprocessableEntity},
		"an order in progress": {"/console/play", card, nil, http.StatusConflict},
		"no play":              {"/console/decision", "decision=approve", nil, http.StatusConflict},
	} {
		require.Equal(t, test.status, request(t, site, http.MethodPost, test.path, test.body, test.change).Code, name)
	}
	p := newPlay(c.system, scenario{card: cards()[3], fault: faults()[0]})
	c.current.Store(p)
	p.view.Asks = true
	require.Equal(t, http.StatusForbidden, request(t, site, http.MethodPost, "/console/decision", "decision=approve", withCookie("")).Code)
	require.True(t, p.view.Asks)
	require.Equal(t, http.StatusAccepted, request(t, site, http.MethodPost, "/console/decision", "decision=approve", nil).Code)
	require.Equal(t, approves, <-p.decisions)
}
