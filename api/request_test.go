package api_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/api"
	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
)

func TestCreateOrder_mediaType(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Equal(t, http.StatusCreated, f.create(t, newKey(), orderBody(),
		header("Content-Type", `Application/JSON; charset="UTF-8"; v=1`), header("Content-Encoding", "Identity")).status)
	before := f.rowCounts(t)
	for coding, edits := range map[string][]requestEdit{
		"": {
			header("Content-Type"),
			header("Content-Type", "text/plain"),
			header("Content-Type", "application/json; charset=iso-8859-1"),
			header("Content-Type", "application/json", "application/json"),
		},
		"identity": {header("Content-Encoding", "identity", "gzip")},
	} {
		for _, e := range edits {
			for _, got := range []response{f.create(t, newKey(), orderBody(), e), f.deliver(t, "{}", "", e)} {
				require.Equal(t, "unsupported-media-type", got.problem(t).slug(), "%s", got.body)
				require.Equal(t, "application/json", got.header.Get("Accept"))
				require.Equal(t, coding, got.header.Get("Accept-Encoding"))
			}
		}
	}
	require.Equal(t, before, f.rowCounts(t))
}

// A damaged repetition gets retry corrected, and then the response of the first request.
// A new key would charge twice.
func TestRetry_correctedAfterLostResponse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, order := newKey(), orderBody()
	first := f.create(t, key, order)
	for name, got := range map[string]response{
		"header twice":   f.create(t, key, order, header("Idempotency-Key", key, key)),
		"no header":      f.create(t, key, order, header("Idempotency-Key")),
		"truncated body": f.create(t, key, order[:len(order)/2]),
		"same member":    f.create(t, key, `{"currency":"eur",`+order[1:]),
		"too large":      f.create(t, key, order+strings.Repeat(" ", 64<<10)),
		"content type":   f.create(t, key, order, header("Content-Type", "text/plain")),
		"API key":        f.create(t, key, order, header("Authorization", "Bearer ok_unknown")),
	} {
		p, outcome := got.problem(t), client.OutcomeUnknown
		if name == "no header" {
			outcome = client.OutcomeNone
		}
		require.Equal(t, []any{client.RetryCorrected, outcome}, []any{p.Retry, p.Outcome}, name)
	}
	again := f.create(t, key, order)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, string(first.body), string(again.body))
	f.requireOnePaidOrder(t)
}

// A slow body is not malformed: with another key the client could pay twice.
func TestCreateOrder_slowBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(f.router, slog.New(slog.DiscardHandler))
	server.Config.ReadTimeout = 100 * time.Millisecond
	server.Start()
	defer server.Close()
	f.url = server.URL

	request := f.request(t, http.MethodPost, "/v1/orders", orderBody(), header("Idempotency-Key", newKey()), chunked)
	body, unsent := io.Pipe()
	defer func() { _ = unsent.Close() }()
	request.Body = body
	go func() { _, _ = io.WriteString(unsent, orderBody()[:100]) }()
	resp, err := f.client.Transport.(*contractTransport).base.RoundTrip(request)
	require.NoError(t, err)
	got, err := readResponse(resp)
	require.NoError(t, err)
	require.Equal(t, "temporarily-unavailable", got.problem(t).slug())
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
