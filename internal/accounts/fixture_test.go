package accounts_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
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

	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/internal/accounts"
)

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
	f := &fixture{t: t, lookups: lookups{connections: map[net.Conn]bool{}}}
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

func (f *fixture) revoke(apiKey string) {
	f.t.Helper()
	hash := sha256.Sum256([]byte(apiKey))
	tag, err := f.pool.Exec(f.t.Context(), "UPDATE api_keys SET revoked_at = now() WHERE key_hash = $1", hash[:])
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, tag.RowsAffected())
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

	mu          sync.Mutex
	block       *block
	down        bool
	connections map[net.Conn]bool
}

type block struct {
	except   string        // the API key whose lookups are not blocked
	reached  chan struct{} // receives a value for each blocked lookup
	released chan struct{}
}

func (l *lookups) configure(config *pgxpool.Config) {
	config.MaxConns = poolSize
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
	if !strings.HasPrefix(query.SQL, "\nSELECT pg_is_in_recovery()") {
		return ctx
	}
	l.count.Add(1)
	l.mu.Lock()
	b := l.block
	l.mu.Unlock()
	if b == nil {
		return ctx
	}
	if b.except != "" && string(query.Args[0].([]byte)) == hashOf(b.except) {
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
