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

func TestPage_token(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	other := func(r *http.Request) {
		r.Header.Del("Cookie")
		r.AddCookie(&http.Cookie{Name: cookieName, Value: token("ok_OTHER")})
	}
	none := func(r *http.Request) { r.Header.Del("Cookie") }
	for _, change := range []func(*http.Request){none, other} {
		for _, path := range []string{"/console", "/console?token=", "/console?token=x", "/console?token=" + token("ok_OTHER"), "/console/play", "/console/console.js"} {
			w := request(t, site, http.MethodGet, path, "", change)
			require.Equal(t, http.StatusForbidden, w.Code, path)
			require.Contains(t, w.Body.String(), "the URL that playground run prints")
			require.Empty(t, w.Header()["Set-Cookie"])
		}
		w := request(t, site, http.MethodPost, "/console/play?token="+token("ok_TEST"), "card=pm_card_visa&fault=none", change)
		require.Equal(t, http.StatusForbidden, w.Code, "only a cookie of the same site authorizes an order")
	}

	for path, url := range map[string]string{"/console": c.URL(), "/docs": c.DocsURL()} {
		require.NotContains(t, url, "ok_TEST")
		withToken := strings.TrimPrefix(url, "http://localhost:8080")
		first := request(t, site, http.MethodGet, withToken, "", none)
		require.Equal(t, http.StatusSeeOther, first.Code)
		require.Equal(t, path, first.Header().Get("Location"))
		require.Equal(t, "no-referrer", first.Header().Get("Referrer-Policy"))
		require.Equal(t, []string{cookieName + "=" + token("ok_TEST") + "; Path=/; HttpOnly; SameSite=Strict"}, first.Header()["Set-Cookie"])
		for _, change := range []func(*http.Request){
			func(r *http.Request) { r.Host = "evil.example" },
			func(r *http.Request) { r.RemoteAddr = "192.0.2.7:50000" },
		} {
			require.Empty(t, request(t, site, http.MethodGet, withToken, "", change).Header()["Set-Cookie"])
		}
	}
}

// The API's documentation contains the API key only if the browser has the cookie.
func TestDocs(t *testing.T) {
	t.Parallel()
	_, site := newSite(t)
	page := request(t, site, http.MethodGet, "/docs", "", nil)
	require.Equal(t, http.StatusOK, page.Code)
	require.Contains(t, page.Body.String(), `<meta name="api-key" content="ok_TEST"></head>`)
	require.Equal(t, "no-store", page.Header().Get("Cache-Control"))
	require.Equal(t, "same-origin", page.Header().Get("Cross-Origin-Resource-Policy"))
	require.Empty(t, page.Header().Get("Access-Control-Allow-Origin"))

	for name, change := range map[string]func(*http.Request){
		"no cookie":           func(r *http.Request) { r.Header.Del("Cookie") },
		"another machine":     func(r *http.Request) { r.RemoteAddr = "192.0.2.7:50000" },
		"another name":        func(r *http.Request) { r.Host = "evil.example" },
		"another origin":      func(r *http.Request) { r.Header.Set("Origin", "http://localhost:3000") },
		"an unknown origin":   func(r *http.Request) { r.Header.Set("Origin", "null") },
		"through a proxy":     func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7") },
		"a cookie of another": func(r *http.Request) { r.Header.Set("Cookie", cookieName+"="+token("ok_OTHER")) },
	} {
		require.Equal(t, "the API", request(t, site, http.MethodGet, "/docs", "", change).Body.String(), name)
	}
	for _, path := range []string{"/docs/init.js", "/docs/scalar.js", "/openapi.yaml"} {
		require.Equal(t, "the API", request(t, site, http.MethodGet, path, "", nil).Body.String(), path)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	_, site := newSite(t)
	for path, contentType := range map[string]string{
		"/console":             "text/html; charset=utf-8",
		"/console/console.css": "text/css; charset=utf-8",
		"/console/console.js":  "text/javascript; charset=utf-8",
	} {
		w := request(t, site, http.MethodGet, path, "", nil)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Equal(t, contentType, w.Header().Get("Content-Type"))
		require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'", w.Header().Get("Content-Security-Policy"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.NotRegexp(t, `https?://`, strings.ReplaceAll(w.Body.String(), "http://localhost:8080", ""), "no other origin is called")
	}
	page := request(t, site, http.MethodGet, "/console", "", nil).Body.String()
	require.NotRegexp(t, regexp.MustCompile(`(?i)<style|style=|<script>|<script [^>]*></script>.*<script|\son[a-z]+=`), page, "nothing that the policy forbids")
	front := request(t, site, http.MethodGet, "/", "", nil)
	require.Equal(t, []string{"/console"}, front.Header()["Location"])
	for _, path := range []string{"/consoles", "/v1/orders", "//console", "/v1//orders"} {
		require.Contains(t, request(t, site, http.MethodGet, path, "", nil).Body.String(), "the API", path)
	}
	for _, path := range []string{"/console/", "/console/page.html", "/console/../v1", "/console/x"} {
		require.NotEqual(t, http.StatusOK, request(t, site, http.MethodGet, path, "", nil).Code, path)
	}
	require.Equal(t, http.StatusMethodNotAllowed, request(t, site, http.MethodPost, "/console", "", nil).Code)
}

func TestPage_otherMachines(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	from := func(address string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = address } }
	_, site := newSite(t)
	for name, test := range map[string]struct {
		change func(*http.Request)
		status int // of GET /console
	}{
		"by name":                           {nil, http.StatusOK},
		"by number":                         {host("127.0.0.1:8080"), http.StatusOK},
		"by number, IPv6":                   {host("[::1]:8080"), http.StatusOK},
		"without a port":                    {host("localhost"), http.StatusOK},
		"from this machine, IPv6":           {from("[::1]:50000"), http.StatusOK},
		"from this machine, mapped":         {from("[::ffff:127.0.0.1]:50000"), http.StatusOK},
		"from another machine":              {from("192.0.2.7:50000"), http.StatusForbidden},
		"no address":                        {from("@"), http.StatusForbidden},
		"a name that resolves to loopback":  {host("rebound.example:8080"), http.StatusForbidden},
		"a name that begins with localhost": {host("localhost.example:8080"), http.StatusForbidden},
		"a name that ends with localhost":   {host("x.localhost:8080"), http.StatusForbidden},
		"no name":                           {host(""), http.StatusForbidden},
		"through a proxy":                   {header("X-Forwarded-For", "192.0.2.7"), http.StatusForbidden},
		"through a proxy, RFC 7239":         {header("Forwarded", "for=192.0.2.7"), http.StatusForbidden},
		"another page":                      {header("Origin", "http://evil.example"), http.StatusForbidden},
		"a page of another local port":      {header("Origin", "http://localhost:3000"), http.StatusForbidden},
		"a file":                            {header("Origin", "null"), http.StatusForbidden},
	} {
		for _, path := range []string{"/console", "/console/console.js", "/console/nothing"} {
			w := request(t, site, http.MethodGet, path, "", test.change)
			if test.status == http.StatusForbidden {
				require.Equal(t, http.StatusForbidden, w.Code, "%s: %s", name, path)
				require.NotContains(t, w.Body.String(), "ok_TEST")
			} else {
				require.NotEqual(t, http.StatusForbidden, w.Code, "%s: %s", name, path)
			}
			require.NotEmpty(t, w.Header().Get("Content-Security-Policy"), name)
		}
	}
}

func TestStart_invalid(t *testing.T) {
	t.Parallel()
	const good = "card=pm_card_visa&fault=none"
	for name, test := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
		want   string
	}{
		"no Origin":            {good, func(r *http.Request) { r.Header.Del("Origin") }, 403, "its own page"},
		"another page":         {good, func(r *http.Request) { r.Header.Set("Origin", "https://localhost:8080") }, 403, "its own page"},
		"no form":              {good, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 422, "no card"},
		"an unknown card":      {"card=pm_card_x&fault=none", nil, 422, "no card"},
		"an unknown fault":     {"card=pm_card_visa&fault=x", nil, 422, "no fault"},
		"no fake":              {"card=pm_card_visa&fault=error", nil, 422, "needs the fake Stripe"},
		"no fake, approval":    {"card=pm_card_threeDSecure2Required&fault=none", nil, 422, "needs the fake Stripe"},
		"an order in progress": {good, nil, 409, "another order is in progress"},
	} {
		_, site := newSite(t)
		w := request(t, site, http.MethodPost, "/console/play", test.body, test.change)
		require.Equal(t, test.status, w.Code, name)
		require.Contains(t, w.Body.String(), test.want, name)
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	const path, good = "/console/decision", "decision=approve"
	require.Equal(t, http.StatusConflict, request(t, site, http.MethodPost, path, good, nil).Code, "no play")
	p := newPlay(c.system, scenario{card: cards()[3], fault: faults()[0]})
	c.current.Store(p)
	require.Equal(t, http.StatusConflict, request(t, site, http.MethodPost, path, good, nil).Code, "no window")
	p.view.Asks = true
	for name, test := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
	}{
		"no Origin":           {good, func(r *http.Request) { r.Header.Del("Origin") }, http.StatusForbidden},
		"no cookie":           {good, func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		"an unknown decision": {"decision=pay", nil, http.StatusUnprocessableEntity},
	} {
		require.Equal(t, test.status, request(t, site, http.MethodPost, path, test.body, test.change).Code, name)
		require.True(t, p.view.Asks, name)
	}
	require.Equal(t, http.StatusAccepted, request(t, site, http.MethodPost, path, good, nil).Code)
	require.Equal(t, http.StatusConflict, request(t, site, http.MethodPost, path, "decision=decline", nil).Code)
	require.Equal(t, approves, <-p.decisions)
	require.False(t, p.view.Asks)
}

func TestShow(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	show := func() string {
		w := request(t, site, http.MethodGet, "/console/play", "", nil)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		return w.Body.String()
	}
	require.Equal(t, "null", show())
	p := newPlay(c.system, scenario{card: cards()[0], fault: faults()[0]})
	c.current.Store(p)
	p.view.Phase = phaseDone
	p.note(event{Lane: laneRow, Text: "</script>\nnext"})
	require.Contains(t, show(), `"phase":"done"`)
	require.Contains(t, show(), `"text":"\u003c/script\u003e\nnext"`)
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "127.0.0.1:8080": true, "[::1]:8080": true, "[::1]": true,
		"127.0.0.2:8080": true, "[::ffff:127.0.0.1]:8080": true, "[::ffff:192.0.2.7]:8080": false, "127.0.0.1.evil.example": false,
		"": false, "x.localhost:8080": false, "192.0.2.7:8080": false, "evil.example": false, "localhost.evil.example": false,
	} {
		require.Equal(t, want, isLoopback(host), host)
	}
}
