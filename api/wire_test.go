package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
)

// These tests write to the socket what no decent client would send.

// wire is a connection to the app.
type wire struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

// patience bounds the wait for an answer or a hang-up. It is less than the
// server's own timeouts, so a test that waits for those fails.
const patience = 10 * time.Second

func (a *app) dial(t *testing.T) *wire {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &wire{Conn: conn, t: t, reader: bufio.NewReader(conn)}
}

func (w *wire) write(text string) {
	w.t.Helper()
	_, err := io.WriteString(w.Conn, text)
	require.NoError(w.t, err)
}

// answer reads one answer. Those of the API, and not of net/http itself, keep
// its promises.
func (w *wire) answer() answer {
	w.t.Helper()
	resp, err := http.ReadResponse(w.reader, nil)
	require.NoError(w.t, err)
	got, err := read(resp)
	require.NoError(w.t, err)
	if got.header.Get("X-Request-Id") != "" {
		require.NoError(w.t, checkHeaders(got))
		slug, err := checkProblem(got)
		require.NoError(w.t, err)
		coverage.saw("problem " + slug)
	}
	return got
}

// slug is the problem's name, or net/http for an answer that is not the API's.
func (got answer) slug() string {
	var p problem
	switch {
	case got.header.Get("X-Request-Id") == "":
		return "net/http"
	case got.status < 400:
		return ""
	case json.Unmarshal(got.body, &p) != nil:
		return "unreadable"
	}
	return p.slug()
}

// requireClosed says that the server hangs up and sends nothing more.
func (w *wire) requireClosed() {
	w.t.Helper()
	rest, err := io.ReadAll(w.reader)
	require.NoError(w.t, err)
	require.Empty(w.t, string(rest))
}

// head is the beginning of a POST /v1/orders that would be fine with a key and a
// body.
func (a *app) head(lines ...string) string {
	return "POST /v1/orders HTTP/1.1\r\nHost: orders\r\nAuthorization: Bearer " + a.apiKey +
		"\r\nContent-Type: application/json\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

func length(body string) string { return fmt.Sprintf("Content-Length: %d", len(body)) }

func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

func TestMalformedKeysDoNothing(t *testing.T) {
	t.Parallel()
	const k = "0123456789abcdef"
	const missing, invalid = "idempotency-key-missing", "idempotency-key-invalid"
	tests := map[string]struct {
		lines []string
		slug  string
	}{
		"no header":                       {nil, missing},
		"empty":                           {[]string{"Idempotency-Key:"}, missing},
		"blanks only":                     {[]string{"Idempotency-Key:  \t "}, missing},
		"two lines":                       {[]string{"Idempotency-Key: " + k, "Idempotency-Key: other-" + k}, invalid},
		"two equal lines":                 {[]string{"Idempotency-Key: " + k, "idempotency-key: " + k}, invalid},
		"two lines, one empty":            {[]string{"Idempotency-Key:", "Idempotency-Key: " + k}, invalid},
		"two, joined by a comma":          {[]string{"Idempotency-Key: " + k + ", other-" + k}, invalid},
		"two quoted, joined by a comma":   {[]string{`Idempotency-Key: "` + k + `","` + k + `"`}, invalid},
		"15 characters":                   {[]string{"Idempotency-Key: " + k[:15]}, invalid},
		"256 characters":                  {[]string{"Idempotency-Key: " + strings.Repeat("k", 256)}, invalid},
		"15 characters, quoted":           {[]string{`Idempotency-Key: "` + k[:15] + `"`}, invalid},
		"256 characters, quoted":          {[]string{`Idempotency-Key: "` + strings.Repeat("k", 256) + `"`}, invalid},
		"15 characters, 30 with escapes":  {[]string{`Idempotency-Key: "` + strings.Repeat(`\"`, 15) + `"`}, invalid},
		"15 kilobytes":                    {[]string{"Idempotency-Key: " + strings.Repeat("k", 15<<10)}, invalid},
		"20 kilobytes":                    {[]string{"Idempotency-Key: " + strings.Repeat("k", 20<<10)}, "net/http"},
		"a space inside":                  {[]string{"Idempotency-Key: 01234567 9abcdefg"}, invalid},
		"a space inside the quotes":       {[]string{`Idempotency-Key: "01234567 9abcdefg"`}, invalid},
		"a tab inside":                    {[]string{"Idempotency-Key: 01234567\t9abcdefg"}, invalid},
		"a letter outside of ASCII":       {[]string{"Idempotency-Key: 0123456789abcdeé"}, invalid},
		"a byte that is not UTF-8":        {[]string{"Idempotency-Key: 0123456789abcde\xff"}, invalid},
		"a line folded":                   {[]string{"Idempotency-Key: 0123456789abcdef", " 0123456789abcdef"}, invalid},
		"DEL":                             {[]string{"Idempotency-Key: 0123456789abcde\x7f"}, "net/http"},
		"NUL":                             {[]string{"Idempotency-Key: 0123456789abcdef\x00"}, "net/http"},
		"CR":                              {[]string{"Idempotency-Key: 01234567\r89abcdef"}, "net/http"},
		"LF, which ends the line":         {[]string{"Idempotency-Key: 01234567\n89abcdef"}, "net/http"},
		"a blank before the colon":        {[]string{"Idempotency-Key : " + k}, "net/http"},
		"an empty string":                 {[]string{`Idempotency-Key: ""`}, invalid},
		"one quote":                       {[]string{`Idempotency-Key: "`}, invalid},
		"no closing quote":                {[]string{`Idempotency-Key: "` + k}, invalid},
		"an escaped closing quote":        {[]string{`Idempotency-Key: "` + k + `\"`}, invalid},
		"an escape at the end":            {[]string{`Idempotency-Key: "` + k + `\`}, invalid},
		"an escape of RFC 9651's unknown": {[]string{`Idempotency-Key: "` + k + `\n"`}, invalid},
		"parameters":                      {[]string{`Idempotency-Key: "` + k + `";v=1`}, invalid},
		"text behind the quote":           {[]string{`Idempotency-Key: "` + k + `"x`}, invalid},
		"in the address only":             {nil, missing},
		"under another name":              {[]string{"X-Idempotency-Key: " + k, "Idempotency_Key: " + k}, missing},
	}
	a := start(t)
	before := a.rows(t)
	order := body()
	for name, test := range tests {
		text := a.head(append(test.lines, length(order), "Connection: close")...) + order
		if name == "in the address only" {
			text = strings.Replace(text, "/v1/orders", "/v1/orders?Idempotency-Key="+k+"&idempotency_key="+k, 1)
		}
		w := a.dial(t)
		w.write(text)
		got := w.answer()
		require.Equal(t, test.slug, got.slug(), "%s: %s", name, got.body)
		require.Empty(t, got.header["Idempotency-Key"], name)
		w.requireClosed()
	}
	require.Equal(t, before, a.rows(t))
	require.Empty(t, a.stripe.Requests())
}

func TestAKeyIsNotTakenFromATrailer(t *testing.T) {
	t.Parallel()
	a := start(t)
	w := a.dial(t)
	w.write(a.head("Transfer-Encoding: chunked", "Trailer: Idempotency-Key", "Connection: close") +
		chunk(body()) + "0\r\nIdempotency-Key: 0123456789abcdef\r\n\r\n")
	require.Equal(t, "idempotency-key-missing", w.answer().slug())
}

func TestBlanksAroundAKeyAreNotPartOfIt(t *testing.T) {
	t.Parallel()
	a := start(t)
	key, order := newKey(), body()
	require.Equal(t, 201, a.create(t, key, order).status)

	w := a.dial(t)
	w.write(a.head("Idempotency-Key: \t "+key+" \t", length(order)) + order)
	got := w.answer()
	require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	require.Equal(t, key, got.header.Get("Idempotency-Key"))
}

func TestBodiesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := "Idempotency-Key: " + newKey()
	before := a.rows(t)

	t.Run("longer than allowed by its own word: refused unread", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Content-Length: 65537"))
		require.Equal(t, "too-large", w.answer().slug())
	})
	t.Run("longer than allowed by its own word: the client is not told to go on", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Content-Length: 1000000000", "Expect: 100-continue"))
		got := w.answer()
		require.Equal(t, "too-large", got.slug())
		require.True(t, got.closes)
		w.requireClosed()
	})
	t.Run("chunks without end: refused at the limit", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Transfer-Encoding: chunked"))
		for range 5 {
			w.write(chunk(strings.Repeat(" ", 16<<10)))
		}
		got := w.answer() // though the client could send more
		require.Equal(t, "too-large", got.slug())
		require.True(t, got.closes)
	})
	t.Run("shorter than announced, then hung up", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Content-Length: 1000") + `{"email":`)
		require.NoError(t, w.Conn.(*net.TCPConn).CloseWrite())
		require.Equal(t, "temporarily-unavailable", w.answer().slug())
		w.requireClosed()
	})
	t.Run("a whole order, but shorter than announced", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Content-Length: 1000") + body())
		require.NoError(t, w.Conn.(*net.TCPConn).CloseWrite())
		require.Equal(t, "temporarily-unavailable", w.answer().slug())
		w.requireClosed()
	})
	t.Run("a chunk that breaks off", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Transfer-Encoding: chunked") + "1000\r\n" + body())
		require.NoError(t, w.Conn.(*net.TCPConn).CloseWrite())
		require.Equal(t, "temporarily-unavailable", w.answer().slug())
		w.requireClosed()
	})
	t.Run("a chunk without a length", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Transfer-Encoding: chunked") + "xyz\r\n" + body() + "\r\n0\r\n\r\n")
		require.Equal(t, "malformed-request", w.answer().slug())
		w.requireClosed()
	})
	require.Equal(t, before, a.rows(t))
}

// A client on a slow line is not told that its request is wrong: under another
// key it could buy twice.
func TestABodyThatComesTooSlowly(t *testing.T) {
	t.Parallel()
	a := start(t)
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(a.router, stepTimeout, slog.New(slog.DiscardHandler))
	server.Config.ReadTimeout = 100 * time.Millisecond
	server.Start()
	defer server.Close()
	impatient := app{url: server.URL, apiKey: a.apiKey}

	w := impatient.dial(t)
	w.write(a.head("Idempotency-Key: "+newKey(), length(body())) + body()[:100])
	require.Equal(t, "temporarily-unavailable", w.answer().slug())
}

func TestAClientMayWaitForContinue(t *testing.T) {
	t.Parallel()
	a := start(t)
	order := body()
	w := a.dial(t)
	w.write(a.head("Idempotency-Key: "+newKey(), length(order), "Expect: 100-continue"))
	line, err := w.reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	_, err = w.reader.ReadString('\n')
	require.NoError(t, err)
	w.write(order)
	require.Equal(t, 201, w.answer().status)

	w = a.dial(t)
	w.write(a.head(length(order), "Expect: 100-continue"))
	got := w.answer()
	require.Equal(t, "idempotency-key-missing", got.slug(), "refused without the body")
	require.True(t, got.closes)
}

// One connection carries many requests, refused ones too.
func TestAnswersComeInOrder(t *testing.T) {
	t.Parallel()
	a := start(t)
	key, order := newKey(), body()
	w := a.dial(t)
	w.write(a.head("Idempotency-Key: "+key, length("[]")) + "[]" +
		a.head(length(order)) + order +
		a.head("Idempotency-Key: "+key, length(order)) + order +
		"GET /healthz HTTP/1.1\r\nHost: orders\r\n\r\n" +
		a.head("Idempotency-Key: "+key, length(order), "Connection: close") + order)

	require.Equal(t, "malformed-request", w.answer().slug())
	require.Equal(t, "idempotency-key-missing", w.answer().slug())
	first := w.answer()
	require.Equal(t, 201, first.status)
	require.JSONEq(t, `{"status":"ok"}`, string(w.answer().body))
	replay := w.answer()
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(first.body), string(replay.body))
	w.requireClosed()
}

// What two servers in a row could read differently must not be a second request
// hidden in the first.
func TestNothingIsSmuggled(t *testing.T) {
	t.Parallel()
	a := start(t)
	key := "Idempotency-Key: " + newKey()
	hidden := a.head("Idempotency-Key: hidden-0123456789", length(body())) + body()
	before := a.rows(t)
	for name, text := range map[string]string{
		"two lengths":                       a.head(key, "Content-Length: 2", length(hidden)) + hidden,
		"two lengths in one line":           a.head(key, "Content-Length: 2, 3") + hidden,
		"a length with a sign":              a.head(key, "Content-Length: +2") + hidden,
		"a negative length":                 a.head(key, "Content-Length: -2") + hidden,
		"a hexadecimal length":              a.head(key, "Content-Length: 0x2") + hidden,
		"a length before a blank and colon": a.head(key, "Content-Length : 2") + hidden,
		"an unknown transfer encoding":      a.head(key, "Transfer-Encoding: chunked, identity") + hidden,
		"an old transfer encoding":          a.head(key, "Transfer-Encoding: identity") + hidden,
		"two transfer encodings":            a.head(key, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + hidden,
		"a transfer encoding in disguise":   a.head(key, "Transfer-Encoding: \x0bchunked") + hidden,
		"a blank before the colon":          a.head(key, "Transfer-Encoding : chunked") + hidden,
		"a chunk length with a bare LF":     a.head(key, "Transfer-Encoding: chunked") + "2\n{}\r\n0\r\n\r\n" + hidden,
		"a chunk length with a sign":        a.head(key, "Transfer-Encoding: chunked") + "+2\r\n{}\r\n0\r\n\r\n" + hidden,
		"a chunk longer than its length":    a.head(key, "Transfer-Encoding: chunked") + "2\r\n{}x\r\n0\r\n\r\n" + hidden,
		"a name with a blank":               a.head(key, "X Y: z", "Content-Length: 2") + hidden,
		"a line without a colon":            a.head(key, "GET /v1/orders HTTP/1.1", "Content-Length: 2") + hidden,
		"no Host":                           strings.Replace(a.head(key, "Content-Length: 2"), "Host: orders\r\n", "", 1) + hidden,
		"two Hosts":                         a.head(key, "Host: other", "Content-Length: 2") + hidden,
	} {
		w := a.dial(t)
		w.write(text)
		got := w.answer()
		require.Contains(t, []int{400, 501}, got.status, "%s: %s", name, got.body)
		w.requireClosed()
	}
	require.Equal(t, before, a.rows(t))

	t.Run("a length beside chunks: the chunks count", func(t *testing.T) {
		w := a.dial(t)
		w.write(a.head(key, "Content-Length: 4", "Transfer-Encoding: chunked", "Connection: close") + "2\r\n[]\r\n0\r\n\r\n" + hidden)
		require.Equal(t, "malformed-request", w.answer().slug())
		w.requireClosed()
		require.Equal(t, before, a.rows(t))
	})
}
