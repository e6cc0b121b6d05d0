package accounts

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SetLookupTimeout shortens the wait of a test.
func (a *Authenticator) SetLookupTimeout(timeout time.Duration) { a.lookupTimeout = timeout }

// Waiting returns the number of unknown keys that wait for a lookup.
func (a *Authenticator) Waiting() (keys int) {
	a.unknownKeys.mu.Lock()
	defer a.unknownKeys.mu.Unlock()
	for _, b := range a.unknownKeys.queue {
		keys += len(b.waiters)
	}
	return keys
}

// FindAccount is the lookup without the cache.
func FindAccount(ctx context.Context, pool *pgxpool.Pool, apiKey string) (uuid.UUID, error) {
	hash := hashKey(apiKey)
	found, err := findAccounts(ctx, pool, [][]byte{hash[:]})
	accountID, exists := found[hash]
	if err == nil && !exists {
		err = ErrUnauthorized
	}
	return accountID, err
}
