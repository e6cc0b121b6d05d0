package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
)

// credentials knows whose request it is. It remembers the API keys that it has
// seen, but that is only a guess, for which the database is asked each time.
type credentials struct {
	pool  *pgxpool.Pool
	reads *idempotency.Gate

	mu   sync.Mutex
	seen map[keyHash]uuid.UUID // accounts of keys that were valid when last seen
}

// keyHash is the SHA-256 of an API key.
type keyHash [sha256.Size]byte

// maxSeen is how many API keys are remembered: a megabyte of them.
const maxSeen = 10_000

func newCredentials(pool *pgxpool.Pool, reads *idempotency.Gate) *credentials {
	return &credentials{pool: pool, reads: reads, seen: map[keyHash]uuid.UUID{}}
}

// caller is whose request it is.
type caller struct {
	account uuid.UUID
	hash    keyHash
	checked atomic.Bool // the database knows the key, and has not only known it once
}

func accountID(ctx context.Context) uuid.UUID { return callerOf(ctx).account }

func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey).(*caller); ok {
		return c
	}
	return &caller{}
}

// checked lets only requests with a valid API key pass, and tells the handlers
// whose it is.
func (c *credentials) checked(next http.Handler) http.Handler {
	return handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		hash, err := presented(r.Header)
		if err != nil {
			return err
		}
		caller := &caller{hash: hash}
		if err := c.check(r.Context(), caller); err != nil {
			return err
		}
		next.ServeHTTP(w, caller.own(r))
		return nil
	})
}

// errNotAsked says that a request was done without anybody asking for its API key.
var errNotAsked = errors.New("api: not checked: what credentials.ask returns did not reach the engine")

// inPassing is like checked, for requests that look something up in any case: an
// API key that was seen before is believed until then, and next must send what
// ask returns along, as keysAPI.post does. So a round trip is saved, and a revoked
// key still opens nothing.
func (c *credentials) inPassing(next handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		hash, err := presented(r.Header)
		if err != nil {
			return err
		}
		caller := &caller{hash: hash}
		var known bool
		if caller.account, known = c.recall(hash); !known {
			if err := c.check(r.Context(), caller); err != nil {
				return err
			}
		}
		err = next(w, caller.own(r))
		if err != nil && !caller.checked.Load() {
			err = cmp.Or(c.check(r.Context(), caller), err) // who is nobody learns nothing else
		}
		if errors.Is(err, errUnauthorized) {
			w.Header().Del("Idempotency-Key")
		}
		return err
	}
}

// own returns the request as the caller's.
func (c *caller) own(r *http.Request) *http.Request {
	logAttrs(r.Context()).add(slog.String("account_id", c.account.String()))
	return r.WithContext(context.WithValue(r.Context(), callerKey, c))
}

// ask returns what checks the caller's API key in a batch of other questions, or
// nil when that is done.
func (c *credentials) ask(caller *caller) func(*pgx.Batch) {
	if caller.checked.Load() {
		return nil
	}
	return func(batch *pgx.Batch) {
		batch.Queue(apiKeySQL, caller.hash[:]).QueryRow(func(row pgx.Row) error {
			return c.learn(caller, row)
		})
	}
}

// check asks the database for the caller's API key. Whose it is may not be known
// yet, so the look has its place by what was sent.
func (c *credentials) check(ctx context.Context, caller *caller) error {
	place, err := c.reads.Enter(uuid.UUID(caller.hash[:16]))
	if err != nil {
		return err
	}
	defer place.Leave()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return interpretLookUp(c.learn(caller, c.pool.QueryRow(ctx, apiKeySQL, caller.hash[:])))
}

// learn takes the database's answer.
func (c *credentials) learn(caller *caller, row pgx.Row) error {
	account, err := scanAPIKey(row)
	switch {
	case errors.Is(err, errUnauthorized):
		c.forget(caller.hash)
		return err
	case err != nil:
		return err
	}
	switch caller.account {
	case uuid.Nil:
		caller.account = account
		c.remember(caller.hash, account)
	case account:
	default: // not what was remembered, so whatever was begun is another's
		c.forget(caller.hash)
		return errUnauthorized
	}
	caller.checked.Store(true)
	return nil
}

func (c *credentials) recall(hash keyHash) (account uuid.UUID, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	account, known = c.seen[hash]
	return account, known
}

func (c *credentials) remember(hash keyHash, account uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.seen {
		if len(c.seen) < maxSeen {
			break
		}
		delete(c.seen, other)
	}
	c.seen[hash] = account
}

func (c *credentials) forget(hash keyHash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, hash)
}

// presented returns the hash of the API key in the Authorization header, of which
// there must be one.
func presented(header http.Header) (keyHash, error) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return keyHash{}, errUnauthorized
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(key, apiKeyPrefix) || len(key) > 255 {
		return keyHash{}, errUnauthorized
	}
	return sha256.Sum256([]byte(key)), nil
}
