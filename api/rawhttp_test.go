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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/idempotency"
)

type rawConn struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

const responseTimeout = 10 * time.Second

func (f *fixture) dial(t *testing.T) *rawConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(responseTimeout)))
	return &rawConn{Conn: conn, t: t, reader: bufio.NewReader(conn)}
}

func (conn *rawConn) write(text string) {
	conn.t.Helper()
	_, err := io.WriteString(conn.Conn, text)
	require.NoError(conn.t, err)
}

func (conn *rawConn) readResponse() response {
	conn.t.Helper()
	resp, err := http.ReadResponse(conn.reader, nil)
	require.NoError(conn.t, err)
	got, err := readResponse(resp)
	require.NoError(conn.t, err)
	if got.header.Get("X-Request-Id") != "" {
		require.NoError(conn.t, checkHeaders(got))
		_, err := openContract(conn.t).checkProblem(got)
		require.NoError(conn.t, err)
	}
	return got
}

func (got response) slug() string {
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

func (conn *rawConn) requireClosed() {
	conn.t.Helper()
	rest, err := io.ReadAll(conn.reader)
	require.NoError(conn.t, err)
	require.Empty(conn.t, string(rest))
}

func (f *fixture) requestHead(lines ...string) string {
	return "POST /v1/orders HTTP/1.1\r\nHost: orders\r\nAuthorization: Bearer " + f.apiKey +
		"\r\nContent-Type: application/json\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

func length(body string) string { return fmt.Sprintf("Content-Length: %d", len(body)) }

func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// Forms that need several lines, see [FuzzIdempotencyKeyHeader].
func TestRawHTTP_malformedKey(t *testing.T) {
	t.Parallel()
	const k = "0123456789abcdef"
	const missing, invalid = "idempotency-key-missing", "idempotency-key-invalid"
	f := newFixture(t)
	before := f.rowCounts(t)
	order := orderBody()
	for name, test := range map[string]struct {
		lines []string
		slug  string
	}{
		"no header":            {nil, missing},
		"two lines":            {[]string{"Idempotency-Key: " + k, "Idempotency-Key: other-" + k}, invalid},
		"two lines, one empty": {[]string{"Idempotency-Key:", "Idempotency-Key: " + k}, invalid},
		"20 kilobytes":         {[]string{"Idempotency-Key: " + strings.Repeat("k", 20<<10)}, "net/http"},
		"folded line":          {[]string{"Idempotency-Key: 0123456789abcdef", " 0123456789abcdef"}, invalid},
		"in the URL":           {nil, missing},
		"in a trailer":         {[]string{"Transfer-Encoding: chunked", "Trailer: Idempotency-Key"}, missing},
		"another name":         {[]string{"X-Idempotency-Key: " + k, "Idempotency_Key: " + k}, missing},
	} {
		text := f.requestHead(append(test.lines, length(order), "Connection: close")...) + order
		switch name {
		case "in the URL":
			text = strings.Replace(text, "/v1/orders", "/v1/orders?Idempotency-Key="+k+"&idempotency_key="+k, 1)
		case "in a trailer":
			text = f.requestHead(append(test.lines, "Connection: close")...) + chunk(order) + "0\r\nIdempotency-Key: " + k + "\r\n\r\n"
		}
		conn := f.dial(t)
		conn.write(text)
		got := conn.readResponse()
		require.Equal(t, test.slug, got.slug(), "%s: %s", name, got.body)
		conn.requireClosed()
	}
	require.Equal(t, before, f.rowCounts(t))
}

func TestRawHTTP_incompleteBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := "Idempotency-Key: " + newKey()
	before := f.rowCounts(t)

	const cut, malformed, large = "temporarily-unavailable", "malformed-request", "too-large"
	for name, test := range map[string]struct {
		line, body, slug string
		ends             bool
	}{
		"above the limit: rejected unread":   {"Content-Length: 65537", "", large, false},
		"above the limit: no 100 Continue":   {"Content-Length: 1000000000\r\nExpect: 100-continue", "", large, false},
		"endless chunks":                     {"Transfer-Encoding: chunked", strings.Repeat(chunk(strings.Repeat(" ", 16<<10)), 5), large, false},
		"whole order, but shorter than that": {"Content-Length: 1000", orderBody(), cut, true},
		"chunk without a length":             {"Transfer-Encoding: chunked", "xyz\r\n" + orderBody() + "\r\n0\r\n\r\n", malformed, false},
	} {
		conn := f.dial(t)
		conn.write(f.requestHead(key, test.line) + test.body)
		if test.ends {
			require.NoError(t, conn.Conn.(*net.TCPConn).CloseWrite())
		}
		got := conn.readResponse()
		require.Equal(t, test.slug, got.slug(), name)
		if test.slug == large {
			require.True(t, got.closes, name)
		} else {
			conn.requireClosed()
		}
	}
	require.Equal(t, before, f.rowCounts(t))
}

// A slow body is not malformed: with another key the client could pay twice.
func TestRawHTTP_slowBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(f.router, slog.New(slog.DiscardHandler))
	server.Config.ReadTimeout = 100 * time.Millisecond
	server.Start()
	defer server.Close()
	impatient := fixture{url: server.URL, apiKey: f.apiKey}

	conn := impatient.dial(t)
	conn.write(f.requestHead("Idempotency-Key: "+newKey(), length(orderBody())) + orderBody()[:100])
	require.Equal(t, "temporarily-unavailable", conn.readResponse().slug())
}

func FuzzIdempotencyKeyHeader(f *testing.F) {
	contract := openContract(f)
	grammar := regexp.MustCompile(contract.doc.Components.Schemas["IdempotencyKey"].Value.Pattern)
	for _, line := range []string{
		"", `"`, `""`, `"\"`, "0123456789abcdef", `"0123456789abcdef"`, `"0123456789\"\\cdef"`, `"0123456789abcdef\"`,
		`"0123456789abcdef";a=1`, "0123456789abcdef, 0123456789abcdef", `0123456789"abcdef`, "0123456789\tabcdef", "0123456789abcdeé",
		strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\"`, 255) + `"`, " \t0123456789abcdef\t ",
		"0123456789abcde", `"0123456789abcde"`, `"` + strings.Repeat(`\"`, 15) + `"`, `"` + strings.Repeat("k", 255) + `"`,
		"01234567 9abcdef", `"01234567 9abcdef"`, "0123456789abcde\xff", "0123456789abcde\x7f", strings.Repeat(`\`, 16),
		`"0123456789abcdef\n"`, `"0123456789abcdef\`, `"0123456789abcdef"x`, `"0123456789abcdef","0123456789abcdef"`,
		"!#$%&'()*+,-./:;<=>?@[]^_`{|}~",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		read := func(line string) (idempotency.Key, error) {
			return api.ReadKey(http.Header{"Idempotency-Key": {line}})
		}
		key, err := read(line)
		require.Equal(t, grammar.MatchString(canonical(line)), err == nil)
		if err != nil {
			require.Empty(t, key)
			return
		}
		require.Regexp(t, `^[!-~]{16,255}$`, string(key))

		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(key)) + `"`
		again, err := read(quoted)
		require.NoError(t, err)
		require.Equal(t, key, again, "the quoted form")
		if key[0] != '"' {
			raw, err := read(string(key))
			require.NoError(t, err)
			require.Equal(t, key, raw, "the raw form")
		}
		require.Contains(t, []string{string(key), quoted}, canonical(line), "the only two forms")

		_, err = api.ReadKey(http.Header{"Idempotency-Key": {line, line}})
		require.ErrorIs(t, err, idempotency.ErrInvalidKey)
	})
}

func canonical(line string) string { return strings.Trim(line, " \t") }
