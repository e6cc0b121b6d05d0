// Package accounts stores accounts and their API keys, and authenticates requests. Only
// the SHA-256 of an API key is stored; the key is shown once, when it is created.
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

// ErrUnauthorized means that an API key is malformed, unknown or revoked.
var ErrUnauthorized = errors.New("the API key is not valid")

const (
	maxAge        = 5 * time.Second // how long a cached key is accepted, also if it was revoked since
	maxCached     = 10_000          // about a megabyte
	lookupTimeout = 5 * time.Second // bounds a lookup, and separately the wait for its result
)

// Authenticator finds the account of an API key. It is safe for concurrent use.
type Authenticator struct {
	pool  *pgxpool.Pool
	clock func() time.Time

	lookupTimeout time.Duration // tests shorten it

	// Unknown keys cost their sender nothing, so they must not delay cached ones.
	unknownKeys, cachedKeys batches

	mu     sync.Mutex
	cache  map[keyHash]verifiedKey
	server context.Context // ends at a reset, when another server may take the writes
	leave  context.CancelFunc
}

// verifiedKey is a key that was valid. After maxAge it no longer authenticates, and only selects the
// queue of cached keys.
type verifiedKey struct {
	accountID  uuid.UUID
	verifiedAt time.Time // before the lookup was sent
}

// NewAuthenticator returns an Authenticator, which uses two connections of the pool. It must not be
// the pool of the orders, which outsiders could fill (R25, bounded outsiders).
func NewAuthenticator(pool *pgxpool.Pool, clock func() time.Time) *Authenticator {
	a := &Authenticator{pool: pool, clock: clock, lookupTimeout: lookupTimeout, cache: map[keyHash]verifiedKey{}}
	a.unknownKeys.lookUp, a.cachedKeys.lookUp = a.lookUp, a.lookUp
	a.server, a.leave = context.WithCancel(context.Background())
	return a
}

// Reset discards all verified keys and repeats the lookups in progress on new connections, because
// the server that verified them may have been demoted (R30, ready to take an order).
func (a *Authenticator) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave()
	a.server, a.leave = context.WithCancel(context.Background())
	clear(a.cache)
	a.pool.Reset()
}

// Authenticate returns the account of apiKey, or [ErrUnauthorized]. A revoked key works for
// up to five more seconds.
func (a *Authenticator) Authenticate(ctx context.Context, apiKey string) (uuid.UUID, error) {
	if !isWellFormed(apiKey) {
		return uuid.Nil, ErrUnauthorized
	}
	hash := hashKey(apiKey)
	a.mu.Lock()
	key, cached := a.cache[hash]
	a.mu.Unlock()
	if cached && a.clock().Sub(key.verifiedAt) < maxAge {
		return key.accountID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.lookupTimeout)
	defer cancel()
	if cached {
		return a.cachedKeys.find(ctx, hash)
	}
	return a.unknownKeys.find(ctx, hash)
}

// lookUp returns the accounts of valid keys. If the authenticator is reset meanwhile, it repeats the
// lookup, because the former server returned the result.
func (a *Authenticator) lookUp(hashes []keyHash) (found map[keyHash]uuid.UUID, err error) {
	for current := false; !current; {
		a.mu.Lock()
		server := a.server
		a.mu.Unlock()
		verifiedAt := a.clock()
		found, err = a.query(server, hashes)
		a.mu.Lock()
		current = server.Err() == nil
		if current && err == nil {
			a.rememberLocked(hashes, found, verifiedAt)
		}
		a.mu.Unlock()
	}
	return found, err
}

// query lets the database compare the hashes, so its duration reveals nothing about them.
func (a *Authenticator) query(server context.Context, hashes []keyHash) (map[keyHash]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(server, a.lookupTimeout)
	defer cancel()
	wanted := make([][]byte, len(hashes))
	for i := range hashes {
		wanted[i] = hashes[i][:]
	}
	found := map[keyHash]uuid.UUID{}
	var hash []byte
	var accountID uuid.UUID
	rows := postgres.Query(ctx, a.pool, `
SELECT key_hash,
       account_id
  FROM api_keys
 WHERE key_hash = ANY ($1)
   AND revoked_at IS NULL`, wanted)
	_, err := pgx.ForEachRow(rows, []any{&hash, &accountID}, func() error {
		found[keyHash(hash)] = accountID
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up API keys: %w", postgres.Translate(err))
	}
	return found, nil
}

// rememberLocked evicts an arbitrary key if the cache is full.
func (a *Authenticator) rememberLocked(hashes []keyHash, found map[keyHash]uuid.UUID, verifiedAt time.Time) {
	for _, hash := range hashes {
		delete(a.cache, hash)
	}
	for hash, accountID := range found {
		if len(a.cache) >= maxCached {
			for evicted := range a.cache {
				delete(a.cache, evicted)
				break
			}
		}
		a.cache[hash] = verifiedKey{accountID, verifiedAt}
	}
}

// An API key is keyPrefix, which secret scanners recognise, and 130 random bits in
// randomAlphabet, for which an unsalted hash is enough.
const (
	keyPrefix      = "ok_"
	randomLength   = 26
	randomAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // what rand.Text uses
)

// storedPrefixLength is what is stored in plain text; 105 secret bits remain.
const storedPrefixLength = len(keyPrefix) + 5

// Prefix returns the part of a valid API key by which operators know it.
func Prefix(apiKey string) string { return apiKey[:storedPrefixLength] }

type keyHash [sha256.Size]byte

func hashKey(apiKey string) keyHash { return sha256.Sum256([]byte(apiKey)) }

func newKey() string { return keyPrefix + rand.Text()[:randomLength] }

func isWellFormed(apiKey string) bool {
	random, found := strings.CutPrefix(apiKey, keyPrefix)
	return found && len(random) == randomLength && strings.Trim(random, randomAlphabet) == ""
}
