package accounts_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/postgres"
)

// fixture is an Authenticator on its own database, with a clock that stands still
// and one account.
type fixture struct {
	t             *testing.T
	authenticator *accounts.Authenticator
	pool          *pgxpool.Pool
	account       uuid.UUID
	apiKey        string
	lookups       lookups
	elapsed       atomic.Int64 // nanoseconds since the clock's zero
}

func newFixture(t *testing.T, configure ...func(*pgxpool.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, lookups: lookups{connections: map[net.Conn]bool{}}}
	f.pool = idempotencytest.NewPool(t, append(configure, f.lookups.configure, func(config *pgxpool.Config) {
		config.MaxConns = accounts.Connections
	})...)
	var err error
	f.authenticator, err = accounts.NewAuthenticator(accounts.Config{Pool: f.pool, Clock: func() time.Time {
		return time.Unix(0, f.elapsed.Load())
	}})
	require.NoError(t, err)
	f.account, f.apiKey = f.create()
	return f
}

func (f *fixture) create() (uuid.UUID, string) {
	f.t.Helper()
	account, apiKey, err := accounts.Create(f.t.Context(), f.pool, "test")
	require.NoError(f.t, err)
	return account, apiKey
}

func (f *fixture) revoke(apiKey string) {
	f.t.Helper()
	hash := sha256.Sum256([]byte(apiKey))
	tag, err := f.pool.Exec(f.t.Context(), "UPDATE api_keys SET revoked_at = now() WHERE key_hash = $1", hash[:])
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, tag.RowsAffected())
}

// pass moves the clock.
func (f *fixture) pass(d time.Duration) { f.elapsed.Add(int64(d)) }

// requireAccepted authenticates with the fixture's API key, and expects that it takes
// that many lookups.
func (f *fixture) requireAccepted(lookups int64) {
	f.t.Helper()
	before := f.lookups.count.Load()
	account, err := f.authenticator.Authenticate(f.t.Context(), f.apiKey)
	require.NoError(f.t, err)
	require.Equal(f.t, f.account, account)
	require.Equal(f.t, lookups, f.lookups.count.Load()-before, "lookups")
}

// requireRejected expects [accounts.ErrUnauthorized] after that many lookups.
func (f *fixture) requireRejected(apiKey string, lookups int64) {
	f.t.Helper()
	before := f.lookups.count.Load()
	account, err := f.authenticator.Authenticate(f.t.Context(), apiKey)
	require.ErrorIs(f.t, err, accounts.ErrUnauthorized)
	require.Equal(f.t, uuid.Nil, account)
	require.Equal(f.t, lookups, f.lookups.count.Load()-before, "lookups")
}

// unknownKey returns a well-formed API key of no account.
func unknownKey() string { return "ok_" + rand.Text() }

// lookups observes the lookups of API keys on a pool: it counts them, blocks them on
// demand, and turns the database off.
type lookups struct {
	count atomic.Int64

	mu          sync.Mutex
	block       *block
	down        bool
	connections map[net.Conn]bool
}

// block blocks lookups until it is released.
type block struct {
	except   string        // the API key whose lookups are not blocked; "" for none
	reached  chan struct{} // receives a value for each blocked lookup
	released chan struct{}
}

func (l *lookups) configure(config *pgxpool.Config) {
	config.ConnConfig.Tracer = l
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.down {
			return nil, errors.New("the database is down")
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			l.connections[conn] = true
		}
		return conn, err
	}
}

// setDown breaks all connections and prevents new ones, or ends that.
func (l *lookups) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for conn := range l.connections {
		_ = conn.Close()
		delete(l.connections, conn)
	}
}

func (l *lookups) setBlock(b block) *block {
	b.reached, b.released = make(chan struct{}, 1000), make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.block = &b
	return l.block
}

func (l *lookups) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(query.SQL, "\nSELECT account_id") {
		return ctx
	}
	l.count.Add(1)
	l.mu.Lock()
	b := l.block
	l.mu.Unlock()
	if b == nil {
		return ctx
	}
	hash := string(query.Args[0].([]byte))
	if b.except != "" && hash == hashOf(b.except) {
		return ctx
	}
	b.reached <- struct{}{}
	select {
	case <-b.released:
	case <-ctx.Done(): // the lookup's timeout: the test fails
	}
	return ctx
}

func (l *lookups) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func hashOf(apiKey string) string {
	hash := sha256.Sum256([]byte(apiKey))
	return string(hash[:])
}

func TestNewAuthenticator_config(t *testing.T) {
	t.Parallel()
	pool := idempotencytest.NewPool(t)
	small := idempotencytest.NewPool(t, func(config *pgxpool.Config) { config.MaxConns = accounts.Connections - 1 })
	for name, config := range map[string]accounts.Config{
		"no pool":     {Clock: time.Now},
		"no clock":    {Pool: pool},
		"small pool":  {Pool: small, Clock: time.Now},
		"zero config": {},
	} {
		_, err := accounts.NewAuthenticator(config)
		require.ErrorContains(t, err, "accounts: an Authenticator", name)
	}
}

// A key is looked up once in five seconds.
func TestAuthenticate_cache(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.requireAccepted(0)
	f.pass(5*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	f.requireAccepted(1)
	f.pass(5*time.Second - 1)
	f.requireAccepted(0)
}

// A revoked key is accepted for at most five seconds after its last lookup.
func TestAuthenticate_revokedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.revoke(f.apiKey)
	f.pass(5*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	f.requireRejected(f.apiKey, 1)
	f.requireRejected(f.apiKey, 1)

	_, second, err := accounts.CreateKey(t.Context(), f.pool, f.account)
	require.NoError(t, err)
	account, err := f.authenticator.Authenticate(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, f.account, account, "the account's other key works")
}

// The age of an entry counts from before its lookup: a key that is revoked while
// the response is under way works for no longer than five seconds.
func TestAuthenticate_revokedDuringLookup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.lookups.setBlock(block{})
	done := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(t.Context(), f.apiKey)
		done <- err
	}()
	<-b.reached
	f.pass(2 * time.Second)
	close(b.released)
	require.NoError(t, <-done)
	f.revoke(f.apiKey)
	f.pass(3*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	f.requireRejected(f.apiKey, 1)
}

// Another process has its own cache, and accepts a revoked key no longer than this
// one.
func TestAuthenticate_twoProcesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other, err := accounts.NewAuthenticator(accounts.Config{Pool: f.pool, Clock: func() time.Time {
		return time.Unix(0, f.elapsed.Load())
	}})
	require.NoError(t, err)
	f.requireAccepted(1)
	f.pass(3 * time.Second)
	_, err = other.Authenticate(t.Context(), f.apiKey)
	require.NoError(t, err)
	f.revoke(f.apiKey)
	f.pass(5 * time.Second)
	f.requireRejected(f.apiKey, 1)
	_, err = other.Authenticate(t.Context(), f.apiKey)
	require.ErrorIs(t, err, accounts.ErrUnauthorized)
}

func TestAuthenticate_malformedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, apiKey := range map[string]string{
		"empty":             "",
		"the prefix":        "ok_",
		"no prefix":         f.apiKey[3:],
		"another prefix":    "sk_" + f.apiKey[3:],
		"one less":          f.apiKey[:len(f.apiKey)-1],
		"one more":          f.apiKey + "A",
		"in lower case":     strings.ToLower(f.apiKey),
		"another character": f.apiKey[:len(f.apiKey)-1] + "1",
		"not in ASCII":      f.apiKey[:len(f.apiKey)-2] + "é",
		"a blank":           f.apiKey + " ",
		"a long one":        "ok_" + strings.Repeat("A", 10<<10),
	} {
		t.Run(name, func(*testing.T) { f.requireRejected(apiKey, 0) })
	}
	f.requireAccepted(1)
}

// Unknown keys are not cached, neither as valid nor as invalid: a key works as soon
// as it exists.
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

// The cache holds at most 10,000 keys. One more key evicts one of them.
func TestAuthenticate_cacheIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const capacity = 10_000
	apiKeys := make([]string, capacity)
	hashes := make([][]byte, capacity)
	for i := range apiKeys {
		var number [16]byte
		binary.BigEndian.PutUint64(number[:], uint64(i))
		apiKeys[i] = "ok_" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(number[:])
		hashes[i] = []byte(hashOf(apiKeys[i]))
	}
	_, err := f.pool.Exec(t.Context(), `
INSERT INTO api_keys (id, account_id, key_hash, prefix)
SELECT gen_random_uuid(), $1, hash, 'ok_many'
  FROM unnest($2::bytea[]) hash`, f.account, hashes)
	require.NoError(t, err)

	all := func() (lookups int64) {
		before := f.lookups.count.Load()
		for _, apiKey := range apiKeys {
			account, err := f.authenticator.Authenticate(t.Context(), apiKey)
			require.NoError(t, err)
			require.Equal(t, f.account, account)
		}
		return f.lookups.count.Load() - before
	}
	require.EqualValues(t, capacity, all())
	for range 100 {
		f.requireRejected(unknownKey(), 1)
	}
	require.Zero(t, all(), "unknown keys evict nothing")

	f.requireAccepted(1)
	// The lookup of an evicted key evicts another one, often of a key that all has
	// passed already.
	lookups := all()
	require.Positive(t, lookups)
	require.Less(t, lookups, int64(capacity/2))
}

// Concurrent requests with one API key share one lookup, whether it was verified
// before or not.
func TestAuthenticate_sharedLookup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, state := range []string{"never verified", "stale"} {
		before := f.lookups.count.Load()
		b := f.lookups.setBlock(block{})
		var requests errgroup.Group
		for range 50 {
			requests.Go(func() error {
				account, err := f.authenticator.Authenticate(t.Context(), f.apiKey)
				if account != f.account {
					return errors.Join(errors.New("another account"), err)
				}
				return err
			})
		}
		<-b.reached
		close(b.released)
		require.NoError(t, requests.Wait(), state)
		require.EqualValues(t, 1, f.lookups.count.Load()-before, state)
		f.pass(5 * time.Second)
	}
}

// The request that began a shared lookup may end before it.
func TestAuthenticate_cancelledRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.pass(5 * time.Second)
	b := f.lookups.setBlock(block{})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(ctx, f.apiKey)
		first <- err
	}()
	<-b.reached
	cancel()
	second := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(t.Context(), f.apiKey)
		second <- err
	}()
	close(b.released)
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	f.requireAccepted(0)
	require.EqualValues(t, f.pool.Stat().TotalConns(), f.pool.Stat().NewConnsCount(), "no connection was closed")
}

// A cached key works for five seconds without the database, and then again when the
// database is back.
func TestAuthenticate_databaseOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.lookups.setDown(true)
	f.pass(5*time.Second - 1)
	f.requireAccepted(0)
	f.pass(1)
	for _, apiKey := range []string{f.apiKey, unknownKey()} {
		_, err := f.authenticator.Authenticate(t.Context(), apiKey)
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.NotErrorIs(t, err, accounts.ErrUnauthorized)
	}
	f.lookups.setDown(false)
	f.requireAccepted(1)
	f.requireRejected(unknownKey(), 1)
}

// A lookup that the database does not answer ends after five seconds.
func TestAuthenticate_lookupTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(config *pgxpool.Config) {
		params := config.ConnConfig.RuntimeParams
		params["lock_timeout"], params["idle_in_transaction_session_timeout"] = "0", "0"
	})
	f.requireAccepted(1)
	f.pass(5 * time.Second)
	operator, err := pgx.ConnectConfig(t.Context(), f.pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { _ = operator.Close(context.Background()) }()
	migration, err := operator.Begin(t.Context())
	require.NoError(t, err)
	_, err = migration.Exec(t.Context(), "LOCK TABLE api_keys")
	require.NoError(t, err)

	errs := make(chan error)
	for _, apiKey := range []string{f.apiKey, unknownKey()} {
		go func() {
			_, err := f.authenticator.Authenticate(t.Context(), apiKey)
			errs <- err
		}()
	}
	for range 2 {
		err := <-errs
		require.ErrorIs(t, err, postgres.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, migration.Rollback(t.Context()))
	f.requireAccepted(1)
}

// While all lookups of unknown keys are blocked, and more of them wait, a stale key
// is revalidated and a cached one accepted.
func TestAuthenticate_unknownKeysDoNotDelayRevalidation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	b := f.lookups.setBlock(block{except: f.apiKey})
	const unknown = 200
	rejected := make(chan error, unknown)
	for range unknown {
		go func() {
			_, err := f.authenticator.Authenticate(t.Context(), unknownKey())
			rejected <- err
		}()
	}
	<-b.reached
	for range 10 {
		f.pass(5 * time.Second)
		f.requireAccepted(1)
		f.requireAccepted(0)
	}
	require.Empty(t, b.reached, "one lookup of an unknown key at a time")
	require.EqualValues(t, 1, f.pool.Stat().AcquiredConns())
	close(b.released)
	for range unknown {
		require.ErrorIs(t, <-rejected, accounts.ErrUnauthorized)
	}
}

// A revoked key has no entry in the cache, so its lookups wait like those of unknown
// keys.
func TestAuthenticate_revokedKeyHasNoPriority(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.requireAccepted(1)
	f.revoke(f.apiKey)
	f.pass(5 * time.Second)
	f.requireRejected(f.apiKey, 1)

	b := f.lookups.setBlock(block{})
	unknown := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(t.Context(), unknownKey())
		unknown <- err
	}()
	<-b.reached
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.authenticator.Authenticate(ctx, f.apiKey)
	require.ErrorIs(t, err, context.Canceled)
	close(b.released)
	require.ErrorIs(t, <-unknown, accounts.ErrUnauthorized)
}

// An unknown key that waits for its lookup leaves the queue when its request ends.
func TestAuthenticate_unknownKeyStopsWaiting(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.lookups.setBlock(block{})
	first := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(t.Context(), unknownKey())
		first <- err
	}()
	<-b.reached
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := f.authenticator.Authenticate(ctx, unknownKey())
		waiting <- err
	}()
	cancel()
	err := <-waiting
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	close(b.released)
	require.ErrorIs(t, <-first, accounts.ErrUnauthorized)
	require.EqualValues(t, 1, f.lookups.count.Load())
}
