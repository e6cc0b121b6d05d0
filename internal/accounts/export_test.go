package accounts

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SetLookupTimeout shortens the wait of a test.
func (a *Authenticator) SetLookupTimeout(timeout time.Duration) { a.lookupTimeout = timeout }

// FindAccount is the lookup without the cache.
func FindAccount(ctx context.Context, pool *pgxpool.Pool, apiKey string) (uuid.UUID, error) {
	return findAccount(ctx, pool, hashKey(apiKey))
}
