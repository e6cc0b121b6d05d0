package accounts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Connections is the size of the [Authenticator]'s pool: one connection for unknown API
// keys, one for cached ones.
const Connections = 2

const (
	// maxAge is how long a cached key, and so a revoked one, is accepted without a
	// lookup.
	maxAge = 5 * time.Second

	// maxCached bounds the cache to about a megabyte.
	maxCached = 10_000

	// lookupTimeout bounds a lookup, and separately the wait for one. A lookup takes less
	// than a millisecond.
	lookupTimeout = 5 * time.Second
)

// Config configures an [Authenticator]. All fields are required.
type Config struct {
	// Pool has at least [Connections] connections and no other user: requests without
	// verified credentials take no connection from the orders (R25).
	Pool *pgxpool.Pool

	Clock func() time.Time // time.Now
}

// Authenticator finds the account of an API key. It caches verified keys, so a revoked
// key works for five more seconds. It is safe for concurrent use.
type Authenticator struct {
	pool  *pgxpool.Pool
	clock func() time.Time

	lookupTimeout time.Duration // tests shorten it

	// Each is a semaphore of one lookup. Unknown keys cost their sender nothing, so they
	// do not delay the lookups of cached ones.
	unknownKeys, cachedKeys chan struct{}

	mu    sync.Mutex
	cache map[keyHash]verifiedKey
}

// verifiedKey is a cache entry. After maxAge it only gives the key's lookup priority
// over those of unknown keys.
type verifiedKey struct {
	accountID  uuid.UUID
	verifiedAt time.Time // before the lookup was sent
}

// NewAuthenticator returns an Authenticator with an empty cache.
func NewAuthenticator(config Config) (*Authenticator, error) {
	switch {
	case config.Pool == nil || config.Clock == nil:
		return nil, errors.New("accounts: an Authenticator needs a pool and a clock")
	case config.Pool.Config().MaxConns < Connections:
		return nil, fmt.Errorf("accounts: an Authenticator's pool needs %d connections", Connections)
	}
	return &Authenticator{
		pool:        config.Pool,
		clock:       config.Clock,
		unknownKeys: make(chan struct{}, 1),
		cachedKeys:  make(chan struct{}, 1),
		cache:       map[keyHash]verifiedKey{},

		lookupTimeout: lookupTimeout,
	}, nil
}

// Authenticate returns the account of apiKey, [ErrUnauthorized], or
// [postgres.ErrUnavailable]. The end of ctx ends the wait for a lookup, but not a
// lookup that was sent: cancelling it would cost its connection.
func (a *Authenticator) Authenticate(ctx context.Context, apiKey string) (uuid.UUID, error) {
	if !isWellFormed(apiKey) {
		return uuid.Nil, ErrUnauthorized
	}
	hash := hashKey(apiKey)
	accountID, cached, fresh := a.cached(hash)
	if fresh {
		return accountID, nil
	}
	turn := a.unknownKeys
	if cached {
		turn = a.cachedKeys
	}
	wait, cancel := context.WithTimeout(ctx, a.lookupTimeout)
	defer cancel()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
		return a.lookup(ctx, hash)
	case <-wait.Done():
		return uuid.Nil, fmt.Errorf("wait to look up API key: %w", postgres.Translate(wait.Err()))
	}
}

// lookup reads the account of a key from the database and updates the cache, unless
// another request has verified the key since.
func (a *Authenticator) lookup(ctx context.Context, hash keyHash) (uuid.UUID, error) {
	if accountID, _, fresh := a.cached(hash); fresh {
		return accountID, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.lookupTimeout)
	defer cancel()
	verifiedAt := a.clock()
	accountID, err := findAccount(ctx, a.pool, hash)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case errors.Is(err, ErrUnauthorized):
		delete(a.cache, hash)
	case err == nil:
		a.addLocked(hash, verifiedKey{accountID, verifiedAt})
	}
	return accountID, err
}

func (a *Authenticator) cached(hash keyHash) (accountID uuid.UUID, cached, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, cached := a.cache[hash]
	return key.accountID, cached, cached && a.clock().Sub(key.verifiedAt) < maxAge
}

// addLocked stores an entry. If the cache is full, it evicts an arbitrary one.
func (a *Authenticator) addLocked(hash keyHash, key verifiedKey) {
	if _, cached := a.cache[hash]; !cached && len(a.cache) >= maxCached {
		for evicted := range a.cache {
			delete(a.cache, evicted)
			break
		}
	}
	a.cache[hash] = key
}

// findAccount returns the account of an unrevoked API key, or [ErrUnauthorized]. It
// compares hashes, so its duration reveals nothing about valid keys.
func findAccount(ctx context.Context, pool *pgxpool.Pool, hash keyHash) (uuid.UUID, error) {
	var accountID uuid.UUID
	err := pool.QueryRow(ctx, `
SELECT account_id
  FROM api_keys
 WHERE key_hash = $1
   AND revoked_at IS NULL`, hash[:]).Scan(&accountID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return uuid.Nil, ErrUnauthorized
	case err != nil:
		return uuid.Nil, fmt.Errorf("look up API key: %w", postgres.Translate(err))
	}
	return accountID, nil
}

// An API key is keyPrefix, which secret scanners recognise, and 130 random bits in
// randomAlphabet, for which an unsalted hash is enough.
const (
	keyPrefix      = "ok_"
	randomLength   = 26
	randomAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
)

// storedPrefixLength is the length of the part of a key that is stored in plain text;
// 105 secret bits remain.
const storedPrefixLength = len(keyPrefix) + 5

type keyHash [sha256.Size]byte

func hashKey(apiKey string) keyHash { return sha256.Sum256([]byte(apiKey)) }

func newKey() string { return keyPrefix + rand.Text()[:randomLength] }

func isWellFormed(apiKey string) bool {
	random, found := strings.CutPrefix(apiKey, keyPrefix)
	return found && len(random) == randomLength && strings.Trim(random, randomAlphabet) == ""
}
