package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

func (f *fixture) requestLine(t *testing.T, got response) map[string]any {
	t.Helper()
	id := got.header.Get("X-Request-Id")
	line := maps.Clone(f.log.await(t, map[string]any{"msg": "request", "request_id": id}))
	require.EqualValues(t, got.status, line["status"])
	require.Positive(t, line["duration_seconds"])
	require.Equal(t, 1, strings.Count(f.log.String(), `"msg":"request","request_id":"`+id+`"`))
	for _, name := range []string{"time", "msg", "request_id", "duration_seconds", "status", "bytes"} {
		require.Contains(t, line, name)
		delete(line, name)
	}
	return line
}

func TestLog_requestLine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, order := newKey(), orderBody()
	line := func(got response) map[string]any { return f.requestLine(t, got) }
	require := require.New(t)

	require.Equal(map[string]any{
		"level": "INFO", "method": "POST", "route": "/v1/orders", "account_id": f.Account.String(),
		"key_id": idempotency.KeyID(f.Account, idempotency.Key(key)).String(), "outcome": "created", "from": "started", "to": "finished", "runs": 1.0,
	}, line(f.create(t, key, order)))
	require.Equal("replayed", line(f.create(t, key, order))["outcome"])
	for problem, test := range map[string]struct {
		got     response
		outcome any
	}{
		"idempotency-key-reused":  {f.create(t, key, orderBody(withMember("currency", "eur"))), "reused"},
		"malformed-request":       {f.create(t, key, "[]"), "rejected"},
		"idempotency-key-missing": {f.create(t, "", order), nil},
	} {
		rejected := line(test.got)
		require.Equal([]any{problem, test.outcome}, []any{rejected["problem"], rejected["outcome"]})
	}

	key = newKey()
	f.interrupt(t, key, order)
	unknown := f.log.await(t, map[string]any{"outcome": "retryable", "problem": "temporarily-unavailable"})
	require.Equal([]any{"WARN", "order_created"}, []any{unknown["level"], unknown["to"]})
	require.Contains(unknown["error"], "status 503")
	require.Equal("recovered", line(f.create(t, key, order))["outcome"])
	key = newKey()
	held, running := f.createHeld(t, key, order)
	require.Equal("in_progress", line(f.create(t, key, order))["outcome"])
	f.exec(t, "UPDATE idempotency_keys SET lease_token = gen_random_uuid() WHERE locked_at IS NOT NULL") // as a takeover does
	held.Release()
	require.Equal("lease_lost", line(receive(t, running))["outcome"])

	anonymous := header("Authorization")
	require.Equal(map[string]any{"level": "INFO", "method": "GET", "route": "", "problem": "not-found"}, line(f.get(t, "/nothing", anonymous)))
	require.Equal(map[string]any{"level": "INFO", "method": "HEAD", "route": "/problems/{slug}"}, line(f.send(t, http.MethodHead, "/problems/not-found", "", anonymous)))
}

// Every fixture checks its log, also after the provider's faults and with each card. This test sends secrets in
// all parts of a request.
func TestLog_noSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := func(name string) string {
		value := "CANARY-" + name + "-0123456789"
		f.secrets.add(value)
		return value
	}
	order := orderBody(
		withMember("email", secret("mail")+"@example.com"),
		withMember("metadata", map[string]any{secret("name"): secret("value")}),
		withMember("items", []any{map[string]any{"sku": secret("sku"), "description": secret("text"), "quantity": 1, "unit_amount": 100}}),
	)
	f.create(t, `"`+newKey()+`"`, order)
	f.create(t, secret("key")+" with spaces", order)
	f.create(t, newKey(), `{"`+secret("member")+`":"`+secret("member's value")+`"}`)
	f.create(t, newKey(), secret("body"))
	f.create(t, newKey(), order, header("Content-Type", "text/"+secret("type")))
	f.create(t, newKey(), order, header("Authorization", "Bearer ok_"+secret("credential")))
	f.create(t, newKey(), order, header("Cookie", secret("cookie")), header("X-Api-Key", secret("header")), header("User-Agent", secret("agent")))
	f.get(t, "/v1/orders?after="+secret("query")+"&key="+secret("query"))
	f.get(t, "/v1/orders/"+secret("path"))
	f.get(t, "/problems/"+secret("path"))
	f.get(t, "/"+secret("path"))

	f.exec(t, "ALTER TABLE orders ADD CHECK (email = 'nobody')  NOT VALID")
	require.Equal(t, http.StatusInternalServerError, f.create(t, newKey(), order).status)

	require.Greater(t, strings.Count(f.log.String(), `"msg":"request"`), 10)
	require.Empty(t, f.secrets.in(f.log.String()))
	require.NotEmpty(t, f.secrets.in("a line with "+f.apiKey), "the search works")
}

type logCapture struct {
	mu    sync.Mutex
	text  strings.Builder
	lines []map[string]any
}

func (l *logCapture) Write(line []byte) (int, error) {
	var attrs map[string]any
	err := json.Unmarshal(line, &attrs)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, attrs)
	l.text.Write(line)
	return len(line), err
}

func (l *logCapture) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logCapture) await(t *testing.T, want map[string]any) (found map[string]any) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, line := range l.lines {
			missing := maps.Clone(want)
			maps.DeleteFunc(missing, func(name string, value any) bool { return line[name] == value })
			if len(missing) == 0 {
				found = line
				return true
			}
		}
		return false
	}, stepTimeout, time.Millisecond, "no such line in the log: %v", want)
	return found
}

type secrets struct {
	mu     sync.Mutex
	values []string
}

func (s *secrets) add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range values {
		if v = strings.Trim(v, ` "`); len(v) >= 6 { // shorter ones are invalid keys
			s.values = append(s.values, v)
		}
	}
}

func (s *secrets) in(text string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for _, v := range s.values {
		if strings.Contains(text, v) {
			found = append(found, v)
		}
	}
	return found
}
