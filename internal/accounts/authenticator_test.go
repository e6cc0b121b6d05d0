package accounts_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

const poolSize = 4

type fixture struct {
	t             *testing.T
	authenticator *accounts.Authenticator
	pool          *pgxpool.Pool
	account       uuid.UUID
	apiKey        string
	lookups       lookups
	elapsed       atomic.Int64 // nanoseconds since the clock's zero
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t}
	f.pool = idempotencytest.NewPool(t, f.lookups.configure)
	f.authenticator = accounts.NewAuthenticator(f.pool, func() time.Time { return time.Unix(0, f.elapsed.Load()) })
	f.account, f.apiKey = create(t, f.pool)
	return f
}

func (f *fixture) authenticate(ctx context.Context, apiKey string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := f.authenticator.Authenticate(ctx, apiKey)
		done <- err
	}()
	return done
}

func (f *fixture) revoke() {
	f.t.Helper()
	keys, err := accounts.ListKeys(f.t.Context(), f.pool, f.account)
	require.NoError(f.t, err)
	require.Len(f.t, keys, 1)
	_, err = accounts.RevokeKey(f.t.Context(), f.pool, f.account, keys[0].ID)
	require.NoError(f.t, err)
}

func (f *fixture) pass(d time.Duration) { f.elapsed.Add(int64(d)) }

func (f *fixture) requireAccepted(lookups int64) {
	f.t.Helper()
	before := f.lookups.count.Load()
	account, err := f.authenticator.Authenticate(f.t.Context(), f.apiKey)
	require.NoError(f.t, err)
	require.Equal(f.t, f.account, account)
	require.Equal(f.t, lookups, f.lookups.count.Load()-before, "lookups")
}

func (f *fixture) requireRejected(apiKey string, lookups int64) {
	f.t.Helper()
	before := f.lookups.count.Load()
	account, err := f.authenticator.Authenticate(f.t.Context(), apiKey)
	require.ErrorIs(f.t, err, accounts.ErrUnauthorized)
	require.Equal(f.t, uuid.Nil, account)
	require.Equal(f.t, lookups, f.lookups.count.Load()-before, "lookups")
}

func unknownKey() string { return "ok_" + rand.Text() }

type lookups struct {
	count atomic.Int64
	block atomic.Pointer[block]
}

type block struct {
	except   string        // the API key whose lookups are not blocked
	reached  chan struct{} // receives a value for each blocked lookup
	released chan struct{}
}

func (l *lookups) configure(config *pgxpool.Config) {
	config.MaxConns = poolSize
	config.ConnConfig.Tracer = l
}

func (l *lookups) setBlock(b block) *block {
	b.reached, b.released = make(chan struct{}, 1000), make(chan struct{})
	l.block.Store(&b)
	return &b
}

func (l *lookups) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(query.SQL, "\nSELECT pg_is_in_recovery()") {
		return ctx
	}
	l.count.Add(1)
	b := l.block.Load()
	if b == nil || b.except != "" && string(query.Args[0].([]byte)) == hashOf(b.except) {
		return ctx
	}
	b.reached <- struct{}{}
	select {
	case <-b.released:
	case <-ctx.Done():
	}
	return ctx
}

func (l *lookups) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func hashOf(apiKey string) string {
	hash := sha256.Sum256([]byte(apiKey))
	return string(hash[:])
}

// The age of an entry counts from before its lookup, so a key that is revoked during
// the lookup works for no longer.
func TestAuthenticate_revokedDuringLookup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.lookups.setBlock(block{})
	done := f.authenticate(t.Context(), f.apiKey)
	<-b.reached
	f.pass(2 * time.Second)
	close(b.released)
	require.NoError(t, <-done)
	f.revoke()
	f.pass(3*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	f.requireRejected(f.apiKey, 1)
}

func TestAuthenticate_malformedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, apiKey := range map[string]string{
		"empty":             "",
		"another prefix":    "sk_" + f.apiKey[3:],
		"one less":          f.apiKey[:len(f.apiKey)-1],
		"in lower case":     strings.ToLower(f.apiKey),
		"another character": f.apiKey[:len(f.apiKey)-1] + "1",
		"a long one":        "ok_" + strings.Repeat("A", 10<<10),
	} {
		t.Run(name, func(*testing.T) { f.requireRejected(apiKey, 0) })
	}
}

// Requests share the lookup of a key, so one that ends does not cancel it.
func TestAuthenticate_sharedLookup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.lookups.setBlock(block{})
	ctx, cancel := context.WithCancel(t.Context())
	first := f.authenticate(ctx, f.apiKey)
	<-b.reached
	var others []<-chan error
	for range 50 {
		others = append(others, f.authenticate(t.Context(), f.apiKey))
	}
	cancel()
	err := <-first
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	close(b.released)
	for _, other := range others {
		require.NoError(t, <-other)
	}
	f.requireAccepted(0)
	require.EqualValues(t, 1, f.lookups.count.Load())
	require.EqualValues(t, f.pool.Stat().TotalConns(), f.pool.Stat().NewConnsCount(), "no connection was closed")
}

// A lookup that fails, here because no connection is free, is 503, and never 401. Keys that were verified are
// valid meanwhile.
func TestAuthenticate_poolExhausted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	var conns []*pgxpool.Conn
	for range poolSize {
		conn, err := f.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		conns = append(conns, conn)
	}
	f.pass(5*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	var results []<-chan error
	for _, apiKey := range []string{f.apiKey, unknownKey(), unknownKey(), unknownKey()} { // the last one waits for its turn
		results = append(results, f.authenticate(t.Context(), apiKey))
	}
	for _, result := range results {
		err := <-result
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.NotErrorIs(t, err, accounts.ErrUnauthorized)
	}
	for _, conn := range conns {
		conn.Release()
	}
	f.requireAccepted(1)
	f.requireRejected(unknownKey(), 1)
}

// After a failover, nothing that the old server verified is valid (R30, ready to take an order), nor what it
// answers then.
func TestAuthenticator_reset(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.requireAccepted(0)
	f.revoke()
	f.authenticator.Reset()
	f.requireRejected(f.apiKey, 1)

	_, apiKey := create(t, f.pool)
	b := f.lookups.setBlock(block{})
	before := f.authenticate(t.Context(), apiKey)
	<-b.reached
	f.authenticator.Reset()
	after := f.authenticate(t.Context(), apiKey)
	<-b.reached
	close(b.released)
	require.ErrorIs(t, <-before, postgres.ErrUnavailable)
	require.NoError(t, <-after)
}

// A standby may lack a key, or its revocation, so its answer is none.
func TestAuthenticate_standby(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, statement := range []string{
		"CREATE SCHEMA standby",
		"CREATE FUNCTION standby.pg_is_in_recovery() RETURNS boolean RETURN true",
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = standby, pg_catalog, public', current_database()); END $$",
	} {
		_, err := f.pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	f.pool.Reset()
	for _, apiKey := range []string{f.apiKey, unknownKey()} {
		_, err := f.authenticator.Authenticate(t.Context(), apiKey)
		require.ErrorIs(t, err, postgres.ErrUnavailable)
	}
}

func TestAuthenticate_unknownKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	apiKey := unknownKey()
	f.requireRejected(apiKey, 1)
	f.requireRejected(apiKey, 1)
	hash := hashOf(apiKey)
	_, err := f.pool.Exec(t.Context(), `
INSERT INTO api_keys (id, account_id, key_hash, prefix)
VALUES ($1, $2, $3, $4)`, uuid.New(), f.account, []byte(hash), apiKey[:8])
	require.NoError(t, err)
	account, err := f.authenticator.Authenticate(t.Context(), apiKey)
	require.NoError(t, err)
	require.Equal(t, f.account, account)
}

// However many keys outsiders try, two connections look them up, and the others serve orders and known keys.
func TestAuthenticate_unknownKeysDelayNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	b := f.lookups.setBlock(block{except: f.apiKey})
	var rejected []<-chan error
	for range 200 {
		rejected = append(rejected, f.authenticate(t.Context(), unknownKey()))
	}
	<-b.reached
	<-b.reached
	for range 10 {
		f.pass(5 * time.Second)
		f.requireAccepted(1)
		f.requireAccepted(0)
		_, err := f.pool.Exec(t.Context(), "SELECT")
		require.NoError(t, err)
	}
	require.Empty(t, b.reached)
	require.LessOrEqual(t, f.pool.Stat().AcquiredConns(), int32(2))
	close(b.released)
	for _, result := range rejected {
		require.Error(t, <-result) // on a busy machine, the lookups of the last ones have timed out
	}
}

// API keys are listed and revoked with the account that has them.
func TestKeys_account(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	account, apiKey := create(t, pool)
	other, _ := create(t, pool)
	keys, err := accounts.ListKeys(t.Context(), pool, account)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, apiKey[:8], keys[0].Prefix)
	for _, ofAnother := range []uuid.UUID{other, uuid.New()} {
		_, err := accounts.RevokeKey(t.Context(), pool, ofAnother, keys[0].ID)
		require.ErrorIs(t, err, accounts.ErrKeyNotFound)
	}
	again, err := accounts.ListKeys(t.Context(), pool, account)
	require.NoError(t, err)
	require.Equal(t, keys, again)
	_, _, err = accounts.CreateKey(t.Context(), pool, uuid.New())
	require.ErrorIs(t, err, accounts.ErrAccountNotFound)
	require.NotErrorIs(t, err, postgres.ErrUnavailable)
	_, err = accounts.ListKeys(t.Context(), pool, uuid.New())
	require.ErrorIs(t, err, accounts.ErrAccountNotFound)
}

func create(t *testing.T, pool *pgxpool.Pool) (uuid.UUID, string) {
	t.Helper()
	account, apiKey, err := accounts.Create(t.Context(), pool, "test")
	require.NoError(t, err)
	return account, apiKey
}
