package idempotency_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
)

const (
	grace       = 5 * time.Minute
	maxAttempts = 3
)

// night is a bench on which a completer works, with what it logs.
type night struct {
	*bench
	log        *logBuffer
	engine     *idempotency.Engine // the bench's but for the log
	operations map[string]idempotency.Operation
	config     idempotency.CompleterConfig
}

func newNight(b *bench, operations ...idempotency.Operation) *night {
	b.t.Helper()
	n := &night{
		bench:      b,
		log:        &logBuffer{},
		operations: map[string]idempotency.Operation{},
		config:     idempotency.CompleterConfig{Grace: grace, MaxAttempts: maxAttempts, Limit: 100, Concurrency: 1},
	}
	for _, op := range operations {
		n.operations[op.Name()] = op
	}
	var err error
	n.engine, err = idempotency.New(b.pool, idempotency.Config{
		LockTimeout: lockTimeout,
		Clock:       time.Now,
		Logger:      slog.New(slog.NewTextHandler(n.log, nil)),
	})
	require.NoError(b.t, err)
	return n
}

func (n *night) completer() *idempotency.Completer {
	n.t.Helper()
	c, err := idempotency.NewCompleter(n.engine, n.find, n.config)
	require.NoError(n.t, err)
	return c
}

func (n *night) find(name string) (idempotency.Operation, bool) {
	op, known := n.operations[name]
	return op, known
}

// pass makes one pass.
func (n *night) pass() idempotency.Pass {
	n.t.Helper()
	pass, err := n.completer().RunOnce(n.t.Context())
	require.NoError(n.t, err)
	return pass
}

// abandon leaves a new key in a state, its last run so long ago.
func (b *bench) abandon(op idempotency.Operation, state idempotencytest.State, ago time.Duration) idempotency.Request {
	b.t.Helper()
	req := b.request()
	b.put(req, op, state)
	b.age(req, ago)
	return req
}

// age makes the last run of a key so much older.
func (b *bench) age(req idempotency.Request, ago time.Duration) {
	b.t.Helper()
	idempotencytest.AgeRun(b.t, b.pool, req.AccountID, idempotency.KeyID(req.AccountID, req.Key), ago)
}

// set changes columns of a key.
func (b *bench) set(req idempotency.Request, columns string, arguments ...any) {
	b.t.Helper()
	tag, err := b.pool.Exec(b.t.Context(), "UPDATE idempotency_keys SET "+columns+" WHERE account_id = $1 AND id = $2",
		append([]any{req.AccountID, idempotency.KeyID(req.AccountID, req.Key)}, arguments...)...)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, tag.RowsAffected())
}

// upkeep is the part of a key's row that is the completer's.
type upkeep struct {
	Attempts    int
	NeedsReview bool
}

func (b *bench) upkeep(req idempotency.Request) upkeep {
	b.t.Helper()
	var u upkeep
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `
SELECT completer_attempt,
       needs_review_at IS NOT NULL
  FROM idempotency_keys
 WHERE account_id = $1
   AND id = $2`, req.AccountID, idempotency.KeyID(req.AccountID, req.Key)).Scan(&u.Attempts, &u.NeedsReview))
	return u
}

// failingToPay is an operation whose second call never has an outcome.

// keys counts the keys that fulfil a condition.
func (b *bench) keys(condition string) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "SELECT count(*) FROM idempotency_keys WHERE "+condition).Scan(&n))
	return n
}

// fill inserts finished keys, the i-th of them i seconds after the first.
func (b *bench) fill(n int, ago time.Duration) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), `
INSERT INTO idempotency_keys (
    id, account_id, idempotency_key, operation, request_method, request_path, request_params, params_hash,
    recovery_point, lease_token, attempt, last_run_at, created_at, finished_at, response_code, response_headers, response_body
)
SELECT gen_random_uuid(), $1, 'one-of-many-' || gen_random_uuid(), 'things', 'POST', '/v1/things', '{}', decode(repeat('01', 33), 'hex'),
       'finished', gen_random_uuid(), 1, at, at, at, 200, '{}', ''
  FROM generate_series(1, $2) AS i,
       LATERAL (SELECT now() - $3::interval + i * interval '1 second') AS t (at)`, b.account, n, ago)
	require.NoError(b.t, err)
}

// analyze lets the planner know what is there, as it does after a while.
func (b *bench) analyze() {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), "ANALYZE idempotency_keys, accounts")
	require.NoError(b.t, err)
}

// logBuffer is a log that several goroutines may write to.
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

// count returns how many lines contain text.
func (b *logBuffer) count(text string) int {
	return len(slices.DeleteFunc(strings.Split(b.String(), "\n"), func(line string) bool { return !strings.Contains(line, text) }))
}
