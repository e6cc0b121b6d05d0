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
	"golang.org/x/sync/singleflight"

	"example.com/orders-api/internal/postgres"
)

// ErrUnauthorized means that an API key is malformed, unknown or revoked.
var ErrUnauthorized = errors.New("the API key is not valid")

const (
	maxAge        = 5 * time.Second // how long a verified key is accepted, also if it was revoked since
	lookupTimeout = 5 * time.Second // includes the wait for a connection

	unknownLookups = 2 // connections that keys take together which were never valid
)

var errOtherServer = fmt.Errorf("%w: another server takes the writes now", postgres.ErrUnavailable)

// Authenticator finds the account of an API key. It is safe for concurrent use.
type Authenticator struct {
	pool    *pgxpool.Pool
	clock   func() time.Time
	unknown chan struct{} // has an element for each lookup of a key that was never valid

	mu     sync.Mutex
	server *server // which answered
}

// server has what one database server answered: a server that was demoted accepts revoked keys.
type server struct {
	verified map[keyHash]verifiedKey
	lookups  singleflight.Group // one for each key
}

// verifiedKey is a key that was valid. After maxAge it no longer authenticates, but its lookup is not one
// of an unknown key.
type verifiedKey struct {
	accountID uuid.UUID
	at        time.Time // before the lookup was sent
}

// NewAuthenticator returns an Authenticator.
func NewAuthenticator(pool *pgxpool.Pool, clock func() time.Time) *Authenticator {
	a := &Authenticator{pool: pool, clock: clock, unknown: make(chan struct{}, unknownLookups)}
	a.Reset()
	return a
}

// Reset discards all verified keys and the lookups in flight, because the server that verified them may have
// been demoted (R30, ready to take an order).
func (a *Authenticator) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server = &server{verified: map[keyHash]verifiedKey{}}
}

// Authenticate returns the account of apiKey, or [ErrUnauthorized]. A revoked key works for
// up to five more seconds.
func (a *Authenticator) Authenticate(ctx context.Context, apiKey string) (uuid.UUID, error) {
	if !isWellFormed(apiKey) {
		return uuid.Nil, ErrUnauthorized
	}
	hash := hashKey(apiKey)
	a.mu.Lock()
	s, now := a.server, a.clock()
	key, known := s.verified[hash]
	if known && now.Sub(key.at) < maxAge {
		a.mu.Unlock()
		return key.accountID, nil
	}
	lookup := s.lookups.DoChan(string(hash[:]), func() (any, error) {
		return a.lookUp(context.WithoutCancel(ctx), s, hash, now, known) // other requests may wait for it
	})
	a.mu.Unlock()
	select {
	case found := <-lookup:
		return found.Val.(uuid.UUID), found.Err
	case <-ctx.Done():
		return uuid.Nil, fmt.Errorf("wait to look up API key: %w", postgres.Translate(ctx.Err()))
	}
}

func (a *Authenticator) lookUp(ctx context.Context, s *server, hash keyHash, begun time.Time, known bool) (uuid.UUID, error) {
	accountID, err := a.query(ctx, hash, known)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.server != s:
		return uuid.Nil, errOtherServer
	case err == nil:
		s.verified[hash] = verifiedKey{accountID, begun}
	case errors.Is(err, ErrUnauthorized):
		delete(s.verified, hash)
	}
	return accountID, err
}

// query looks up unknown keys on few connections, because such a key costs its sender nothing and must not
// delay orders (R25, bounded outsiders). The database compares the hashes, so the duration reveals nothing.
func (a *Authenticator) query(ctx context.Context, hash keyHash, known bool) (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if !known {
		select {
		case a.unknown <- struct{}{}:
			defer func() { <-a.unknown }()
		case <-ctx.Done():
			return uuid.Nil, fmt.Errorf("wait to look up API key: %w", postgres.Translate(ctx.Err()))
		}
	}
	var standby bool
	var accountID *uuid.UUID
	_, err := pgx.ForEachRow(postgres.Query(ctx, a.pool, `
SELECT pg_is_in_recovery(),
       (SELECT account_id FROM api_keys WHERE key_hash = $1 AND revoked_at IS NULL)`, hash[:]),
		[]any{&standby, &accountID}, func() error { return nil })
	switch {
	case err != nil:
		return uuid.Nil, fmt.Errorf("look up API key: %w", postgres.Translate(err))
	case standby: // which may lack a key, or its revocation
		return uuid.Nil, errOtherServer
	case accountID == nil:
		return uuid.Nil, ErrUnauthorized
	}
	return *accountID, nil
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

// Errors of accounts and their keys.
var (
	ErrAccountNotFound = errors.New("there is no such account")
	ErrKeyNotFound     = errors.New("the account has no such API key")
)

// Key is a stored API key.
type Key struct {
	AccountID uuid.UUID
	ID        uuid.UUID
	Prefix    string // its first characters
	CreatedAt time.Time
	RevokedAt *time.Time // nil if the key is not revoked
}

// Create creates an account with one API key.
func Create(ctx context.Context, pool *pgxpool.Pool, name string) (accountID uuid.UUID, apiKey string, _ error) {
	accountID = uuid.New() // random, because derived ids hash it and must differ in each database
	batch := &pgx.Batch{}
	batch.Queue(`
INSERT INTO accounts (id, name)
VALUES ($1, $2)`, accountID, strings.TrimSpace(name))
	_, apiKey = queueKey(batch, accountID)
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return uuid.Nil, "", fmt.Errorf("create account: %w", postgres.Translate(err))
	}
	return accountID, apiKey, nil
}

// CreateKey creates an API key of an account, or returns [ErrAccountNotFound].
func CreateKey(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID) (id uuid.UUID, apiKey string, err error) {
	batch := &pgx.Batch{}
	id, apiKey = queueKey(batch, accountID)
	err = pool.SendBatch(ctx, batch).Close()
	switch {
	case postgres.SQLState(err) == postgres.ForeignKeyViolation:
		return uuid.Nil, "", ErrAccountNotFound
	case err != nil:
		return uuid.Nil, "", fmt.Errorf("create API key: %w", postgres.Translate(err))
	}
	return id, apiKey, nil
}

func queueKey(batch *pgx.Batch, accountID uuid.UUID) (id uuid.UUID, apiKey string) {
	id, apiKey = uuid.New(), newKey()
	hash := hashKey(apiKey)
	batch.Queue(`
INSERT INTO api_keys (id, account_id, key_hash, prefix)
VALUES ($1, $2, $3, $4)`, id, accountID, hash[:], Prefix(apiKey))
	return id, apiKey
}

// Account is an account and the number of its API keys that are not revoked.
type Account struct {
	ID        uuid.UUID
	Name      string
	CreatedAt time.Time
	Keys      int
}

// List returns all accounts, oldest first.
func List(ctx context.Context, pool *pgxpool.Pool) ([]Account, error) {
	return postgres.Collect(ctx, pool, "list accounts", pgx.RowToStructByPos[Account], `
SELECT a.id,
       a.name,
       a.created_at,
       count(k.id)
  FROM accounts AS a
  LEFT JOIN api_keys AS k
    ON k.account_id = a.id
   AND k.revoked_at IS NULL
 GROUP BY a.id
 ORDER BY a.created_at, a.id`)
}

// ListKeys returns the API keys of an account, or of all if accountID is uuid.Nil, oldest first. Each account has
// one, so [ErrAccountNotFound] means that there are none.
func ListKeys(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID) ([]Key, error) {
	keys, err := postgres.Collect(ctx, pool, "list API keys", pgx.RowToStructByPos[Key], `
SELECT account_id,
       id,
       prefix,
       created_at,
       revoked_at
  FROM api_keys
 WHERE account_id = $1
    OR $1 = '00000000-0000-0000-0000-000000000000'
 ORDER BY created_at, id`, accountID)
	if err == nil && len(keys) == 0 {
		err = ErrAccountNotFound
	}
	return keys, err
}

// RevokeKey revokes an API key of the account. A revoked key keeps its RevokedAt.
func RevokeKey(ctx context.Context, pool *pgxpool.Pool, accountID, id uuid.UUID) (Key, error) {
	keys, err := postgres.Collect(ctx, pool, "revoke API key", pgx.RowToStructByPos[Key], `
UPDATE api_keys
   SET revoked_at = least(revoked_at, now()) -- not coalesce, in which Citus rejects now()
 WHERE account_id = $1
   AND id = $2
RETURNING account_id, id, prefix, created_at, revoked_at`, accountID, id)
	switch {
	case err != nil:
		return Key{}, err
	case len(keys) == 0:
		return Key{}, ErrKeyNotFound
	}
	return keys[0], nil
}
