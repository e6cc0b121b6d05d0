package idempotency_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
)

const (
	grace         = 5 * time.Minute
	actionTimeout = 24 * time.Hour
)

type completerFixture struct {
	*fixture
	log    *logBuffer
	config idempotency.CompleterConfig
}

func newCompleterFixture(f *fixture, operations ...idempotency.Operation) *completerFixture {
	f.t.Helper()
	log := &logBuffer{}
	engine := newEngine(f.t, f.pool, func(c *idempotency.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	engine.Register(operations...)
	return &completerFixture{
		fixture: &fixture{t: f.t, pool: f.pool, engine: engine, account: f.account},
		log:     log,
		config:  idempotency.CompleterConfig{Grace: grace, ActionTimeout: actionTimeout, Batch: 100, Concurrency: 1},
	}
}

func (f *completerFixture) completer() *idempotency.Completer {
	f.t.Helper()
	return idempotency.NewCompleter(f.engine, f.config)
}

func (f *completerFixture) pass() idempotency.CompleterResult {
	f.t.Helper()
	result, err := f.completer().RunOnce(f.t.Context())
	require.NoError(f.t, err)
	return result
}

func failingToPay() *threeSteps {
	return &threeSteps{pay: func(context.Context, *idempotency.Run) error { return errNoResponse }}
}

func (f *fixture) putAbandoned(op idempotency.Operation, state given, ago time.Duration) idempotency.Request {
	f.t.Helper()
	return f.putChanged(op, state, ago, "")
}

func (f *fixture) putChanged(op idempotency.Operation, state given, ago time.Duration, columns string) idempotency.Request {
	f.t.Helper()
	req := f.request()
	f.put(req, op, state)
	if ago > 0 {
		f.ageRun(req, ago)
	}
	if columns != "" {
		f.update(req, columns)
	}
	return req
}

func (f *fixture) countKeys(condition string) int {
	f.t.Helper()
	var n int
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT count(*) FROM idempotency_keys WHERE "+condition).Scan(&n))
	return n
}

// The i-th key was finished i milliseconds after ago.
func (f *fixture) insertFinished(n int, ago time.Duration) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, fingerprint, recovery_point,
    lease_token, runs, updated_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'one-of-many-' || gen_random_uuid(), 'things', 'POST', '/v1/things', '{}', decode(repeat('01', 33), 'hex'), 'finished',
       gen_random_uuid(), 1, at, at, at, 200, '{}', ''
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - $3::interval + i * interval '1 millisecond') AS t (at)`, f.account, n, ago)
	require.NoError(f.t, err)
}

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) count(text string) int { return strings.Count(b.String(), text) }
