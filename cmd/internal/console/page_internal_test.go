package console

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newSite returns a console without a play, and its handler before an API that
// responds "the API".
func newSite(t *testing.T) (*Console, http.Handler) {
	t.Helper()
	c := &Console{
		Options: Options{APIKey: "ok_TEST", Logger: slog.New(slog.DiscardHandler)},
		done:    make(chan struct{}),
		starts:  make(chan choice),
		changed: make(chan struct{}),
	}
	site, err := c.Mount(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the API") }))
	require.NoError(t, err)
	return c, site
}

// request sends a request like a browser on this machine. change may change it.
func request(t *testing.T, site http.Handler, method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost:8080"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:50000"
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://localhost:8080")
		r.Header.Set("Content-Type", "application/json")
	}
	r.AddCookie(&http.Cookie{Name: cookieName, Value: token("ok_TEST")})
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	site.ServeHTTP(w, r)
	return w
}

// A proxy on this machine may set Host to localhost and add no header, so only the
// token tells its clients from a person at this machine.
func TestPage_token(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	other := func(r *http.Request) {
		r.Header.Del("Cookie")
		r.AddCookie(&http.Cookie{Name: cookieName, Value: token("ok_OTHER")})
	}
	none := func(r *http.Request) { r.Header.Del("Cookie") }
	for _, change := range []func(*http.Request){none, other} {
		for _, path := range []string{"/console", "/console?token=", "/console?token=x", "/console?token=" + token("ok_OTHER"), "/console/plays", "/console/console.js"} {
			w := request(t, site, http.MethodGet, path, "", change)
			require.Equal(t, http.StatusForbidden, w.Code, path)
			require.Contains(t, w.Body.String(), "the URL that orders dev prints")
			require.Empty(t, w.Header()["Set-Cookie"])
		}
		w := request(t, site, http.MethodPost, "/console/plays?token="+token("ok_TEST"), `{"card":"pm_card_visa","failure":"none"}`, change)
		require.Equal(t, http.StatusForbidden, w.Code, "only a cookie of the same site authorizes an order")
	}

	url := c.URL("http://localhost:8080")
	require.NotContains(t, url, "ok_TEST")
	first := request(t, site, http.MethodGet, strings.TrimPrefix(url, "http://localhost:8080"), "", none)
	require.Equal(t, http.StatusSeeOther, first.Code)
	require.Equal(t, "/console", first.Header().Get("Location"))
	require.Equal(t, "no-referrer", first.Header().Get("Referrer-Policy"))
	require.Equal(t, []string{cookieName + "=" + token("ok_TEST") + "; Path=/console; HttpOnly; SameSite=Strict"}, first.Header()["Set-Cookie"])
	abroad := request(t, site, http.MethodGet, strings.TrimPrefix(url, "http://localhost:8080"), "", func(r *http.Request) { r.Host = "evil.example" })
	require.Equal(t, http.StatusForbidden, abroad.Code)
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
		require.NotRegexp(t, `https?://`, w.Body.String(), "no other origin is called")
	}
	page := request(t, site, http.MethodGet, "/console", "", nil).Body.String()
	require.Contains(t, page, "export API_KEY=ok_TEST")
	require.NotRegexp(t, regexp.MustCompile(`(?i)<style|style=|<script>|<script [^>]*></script>.*<script|\son[a-z]+=`), page, "nothing that the policy forbids")
	front := request(t, site, http.MethodGet, "/", "", nil)
	require.Equal(t, []string{"/console"}, front.Header()["Location"])
	for _, path := range []string{"/consoles", "/v1/orders", "//console", "/v1//orders"} {
		require.Equal(t, "the API", request(t, site, http.MethodGet, path, "", nil).Body.String(), path)
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

func TestOrder_invalid(t *testing.T) {
	t.Parallel()
	const good = `{"card":"pm_card_visa","failure":"none"}`
	without := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, test := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
		want   string
	}{
		"no Origin":                     {good, without("Origin"), 403, "its own page"},
		"another page":                  {good, with("Origin", "https://localhost:8080"), 403, "its own page"},
		"a form":                        {good, with("Content-Type", "text/plain"), 415, "application/json"},
		"no type":                       {good, without("Content-Type"), 415, "application/json"},
		"no JSON":                       {"card", nil, 400, "a card and a failure"},
		"another member":                {`{"card":"pm_card_visa","failure":"none","amount":1}`, nil, 400, "a card and a failure"},
		"too long":                      {`{"card":"` + strings.Repeat("x", 2000) + `"}`, nil, 400, "a card and a failure"},
		"an unknown card":               {`{"card":"pm_card_x","failure":"none"}`, nil, 422, "no card"},
		"an unknown failure":            {`{"card":"pm_card_visa","failure":"x"}`, nil, 422, "no failure"},
		"no stand-in":                   {`{"card":"pm_card_visa","failure":"error"}`, nil, 422, "needs the stand-in"},
		"no stand-in for the bank":      {`{"card":"pm_card_threeDSecure2Required","failure":"none"}`, nil, 422, "needs the stand-in"},
		"the console is stopping":       {good, nil, 503, "shutting down"},
		"a media type with a parameter": {good, with("Content-Type", "application/json; charset=utf-8"), 503, "shutting down"},
	} {
		c, site := newSite(t)
		close(c.done)
		w := request(t, site, http.MethodPost, "/console/plays", test.body, test.change)
		require.Equal(t, test.status, w.Code, name)
		require.Contains(t, w.Body.String(), test.want, name)
	}

	c, site := newSite(t)
	c.busy = true
	require.Equal(t, http.StatusConflict, request(t, site, http.MethodPost, "/console/plays", good, nil).Code)
}

func TestCustomer(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	const path, good = "/console/customer", `{"response":"approve"}`
	require.Equal(t, http.StatusConflict, request(t, site, http.MethodPost, path, good, nil).Code, "no play")
	p := newPlay(c, choice{card: cards()[3], failure: failures()[0]})
	c.play = p
	require.Equal(t, http.StatusConflict, request(t, site, http.MethodPost, path, good, nil).Code, "no window")
	p.view.Asks = true
	for name, test := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
	}{
		"no Origin":            {good, func(r *http.Request) { r.Header.Del("Origin") }, http.StatusForbidden},
		"no cookie":            {good, func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		"a form":               {good, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, http.StatusUnsupportedMediaType},
		"no JSON":              {"approve", nil, http.StatusBadRequest},
		"an unknown response":  {`{"response":"pay"}`, nil, http.StatusUnprocessableEntity},
		"an unknown parameter": {`{"response":"approve","amount":1}`, nil, http.StatusBadRequest},
	} {
		require.Equal(t, test.status, request(t, site, http.MethodPost, path, test.body, test.change).Code, name)
		require.True(t, p.view.Asks, name)
	}
	require.Equal(t, http.StatusAccepted, request(t, site, http.MethodPost, path, good, nil).Code)
	require.Equal(t, http.StatusConflict, request(t, site, http.MethodPost, path, `{"response":"close"}`, nil).Code)
	require.Equal(t, approves, <-p.responses)
	require.False(t, p.view.Asks)
}

func TestStream(t *testing.T) {
	t.Parallel()
	c, site := newSite(t)
	server := httptest.NewUnstartedServer(site)
	const bound = 50 * time.Millisecond // of the server, for other requests
	server.Config.ReadTimeout, server.Config.WriteTimeout = bound, bound
	server.Start()
	defer server.Close()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	server.Client().Jar = jar
	page, err := server.Client().Get(c.URL(server.URL))
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	response, err := server.Client().Get(server.URL + "/console/plays")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	next := func() string {
		for lines.Scan() {
			if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
				return data
			}
		}
		return ""
	}

	chosen, err := c.choose("pm_card_visa", "lost")
	require.NoError(t, err)
	p := newPlay(c, chosen)
	c.mu.Lock()
	c.play = p
	c.mu.Unlock()
	c.changedNow()
	first := next()
	require.Contains(t, first, `"phase":"running"`)
	require.Contains(t, first, `"failure":"The answer is lost"`)
	c.changedNow() // no change: nothing is sent
	<-time.After(2 * bound)
	p.note(event{Lane: laneRow, Text: "</script>\nit moves"})
	require.Contains(t, next(), `"text":"\u003c/script\u003e\nit moves"`)
	p.end(nil)
	require.Contains(t, next(), `"phase":"done"`)

	// A later stream gets the view at once, and all streams end with the console.
	later, err := server.Client().Get(server.URL + "/console/plays")
	require.NoError(t, err)
	defer later.Body.Close()
	close(c.done)
	all, err := io.ReadAll(later.Body)
	require.NoError(t, err)
	require.Contains(t, string(all), `"phase":"done"`)
	require.Empty(t, next())
}
