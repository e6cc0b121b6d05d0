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

var errReset = errors.New("the authenticator was reset during the lookup")

const (
	maxAge        = 5 * time.Second // how long a cached key, and so a revoked one, is accepted
	maxCached     = 10_000          // about a megabyte
	lookupTimeout = 5 * time.Second // of a lookup, and separately of the wait for its result
)

// Authenticator finds the account of an API key. It is safe for concurrent use.
type Authenticator struct {
	pool  *pgxpool.Pool
	clock func() time.Time

	lookupTimeout time.Duration // tests shorten it

	// Unknown keys cost their sender nothing, so they do not delay those of cached ones.
	unknownKeys, cachedKeys batches

	mu     sync.Mutex
	cache  map[keyHash]verifiedKey
	server context.Context // ends when another server may take the writes
	leave  context.CancelFunc
}

// verifiedKey only gives the key's lookup priority after maxAge.
type verifiedKey struct {
	accountID  uuid.UUID
	verifiedAt time.Time // before the lookup was sent
}

// NewAuthenticator returns an Authenticator, which uses two connections of the pool. This is
// not the pool of the orders (R25).
func NewAuthenticator(pool *pgxpool.Pool, clock func() time.Time) *Authenticator {
	a := &Authenticator{pool: pool, clock: clock, lookupTimeout: lookupTimeout, cache: map[keyHash]verifiedKey{}}
	a.unknownKeys.lookUp, a.cachedKeys.lookUp = a.lookUp, a.lookUp
	a.server, a.leave = context.WithCancel(context.Background())
	return a
}

// Reset discards what a server has verified that may not take the writes any more (R30), and
// repeats the lookups in progress on new connections.
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

// lookUp returns the accounts of valid keys, of the server that is current when it returns.
func (a *Authenticator) lookUp(hashes []keyHash) (found map[keyHash]uuid.UUID, err error) {
	for err = errReset; errors.Is(err, errReset); {
		found, err = a.lookUpAt(hashes)
	}
	return found, err
}

// lookUpAt returns errReset if its server is not current any more. The database compares hashes, so the duration
// reveals nothing about them.
func (a *Authenticator) lookUpAt(hashes []keyHash) (map[keyHash]uuid.UUID, error) {
	a.mu.Lock()
	server := a.server
	a.mu.Unlock()
	found := map[keyHash]uuid.UUID{}
	unknown := make([][]byte, 0, len(hashes))
	for _, hash := range hashes {
		if accountID, _, fresh := a.cached(hash); fresh { // another batch has verified it since
			found[hash] = accountID
		} else {
			unknown = append(unknown, hash[:])
		}
	}
	if len(unknown) == 0 {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(server, a.lookupTimeout)
	defer cancel()
	verifiedAt := a.clock()
	var hash []byte
	var accountID uuid.UUID
	rows, _ := a.pool.Query(ctx, `
SELECT key_hash,
       account_id
  FROM api_keys
 WHERE key_hash = ANY ($1)
   AND revoked_at IS NULL`, unknown)
	_, err := pgx.ForEachRow(rows, []any{&hash, &accountID}, func() error {
		found[keyHash(hash)] = accountID
		return nil
	})
	if err != nil && server.Err() == nil {
		return nil, fmt.Errorf("look up API keys: %w", postgres.Translate(err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if server.Err() != nil {
		return nil, errReset
	}
	for _, hash := range unknown {
		if accountID, exists := found[keyHash(hash)]; exists {
			a.addLocked(keyHash(hash), verifiedKey{accountID, verifiedAt})
		} else {
			delete(a.cache, keyHash(hash))
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

// addLocked evicts an arbitrary entry if the cache is full.
func (a *Authenticator) addLocked(hash keyHash, key verifiedKey) {
	if _, cached := a.cache[hash]; !cached && len(a.cache) >= maxCached {
		for evicted := range a.cache {
			delete(a.cache, evicted)
			break
		}
	}
	a.cache[hash] = key
}

// An API key is keyPrefix, which secret scanners recognise, and 130 random bits in
// randomAlphabet, for which an unsalted hash is enough.
const (
	keyPrefix      = "ok_"
	randomLength   = 26
	randomAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
)

// storedPrefixLength is what is stored in plain text; 105 secret bits remain.
const storedPrefixLength = len(keyPrefix) + 5

type keyHash [sha256.Size]byte

func hashKey(apiKey string) keyHash { return sha256.Sum256([]byte(apiKey)) }

func newKey() string { return keyPrefix + rand.Text()[:randomLength] }

func isWellFormed(apiKey string) bool {
	random, found := strings.CutPrefix(apiKey, keyPrefix)
	return found && len(random) == randomLength && strings.Trim(random, randomAlphabet) == ""
}
