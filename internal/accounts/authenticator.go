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

	// lookupTimeout bounds a lookup, and separately the wait for its result. A lookup takes
	// some milliseconds.
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

	// Unknown keys cost their sender nothing, so they do not delay the lookups of cached
	// ones.
	unknownKeys, cachedKeys batches

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
	a := &Authenticator{
		pool:  config.Pool,
		clock: config.Clock,
		cache: map[keyHash]verifiedKey{},

		lookupTimeout: lookupTimeout,
	}
	a.unknownKeys.lookUp, a.cachedKeys.lookUp = a.lookUp, a.lookUp
	return a, nil
}

// Authenticate returns the account of apiKey, [ErrUnauthorized], or
// [postgres.ErrUnavailable]. The end of ctx ends the wait for a lookup, but not a
// lookup that was sent: it has the keys of other requests, too.
func (a *Authenticator) Authenticate(ctx context.Context, apiKey string) (uuid.UUID, error) {
	if !isWellFormed(apiKey) {
		return uuid.Nil, ErrUnauthorized
	}
	hash := hashKey(apiKey)
	accountID, cached, fresh := a.cached(hash)
	if fresh {
		return accountID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.lookupTimeout)
	defer cancel()
	if cached {
		return a.cachedKeys.find(ctx, hash)
	}
	return a.unknownKeys.find(ctx, hash)
}

// lookUp reads the accounts of a batch from the database and updates the cache. Keys that
// another batch has verified since are not read.
func (a *Authenticator) lookUp(hashes []keyHash) (map[keyHash]uuid.UUID, error) {
	found := map[keyHash]uuid.UUID{}
	unknown := make([][]byte, 0, len(hashes))
	for _, hash := range hashes {
		if accountID, _, fresh := a.cached(hash); fresh {
			found[hash] = accountID
		} else {
			unknown = append(unknown, hash[:])
		}
	}
	if len(unknown) == 0 {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.lookupTimeout)
	defer cancel()
	verifiedAt := a.clock()
	accountIDs, err := findAccounts(ctx, a.pool, unknown)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, hash := range unknown {
		hash := keyHash(hash)
		if accountID, exists := accountIDs[hash]; exists {
			found[hash] = accountID
			a.addLocked(hash, verifiedKey{accountID, verifiedAt})
		} else {
			delete(a.cache, hash)
		}
	}
	return found, nil
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

// findAccounts returns the accounts of those API keys that exist and are not revoked. It
// compares hashes, so its duration reveals nothing about valid keys.
func findAccounts(ctx context.Context, pool *pgxpool.Pool, hashes [][]byte) (map[keyHash]uuid.UUID, error) {
	found := map[keyHash]uuid.UUID{}
	var hash []byte
	var accountID uuid.UUID
	rows, _ := pool.Query(ctx, `
SELECT key_hash,
       account_id
  FROM api_keys
 WHERE key_hash = ANY ($1)
   AND revoked_at IS NULL`, hashes)
	_, err := pgx.ForEachRow(rows, []any{&hash, &accountID}, func() error {
		found[keyHash(hash)] = accountID
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up API keys: %w", postgres.Translate(err))
	}
	return found, nil
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
