package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// storage is a fiber.Storage in the table responses, like the module storage/postgres of
// Fiber's authors.
type storage struct{ pool *pgxpool.Pool }

func (s storage) GetWithContext(ctx context.Context, key string) (value []byte, err error) {
	err = s.pool.QueryRow(ctx, "SELECT value FROM responses WHERE key = $1 AND expires_at > now()", key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

func (s storage) SetWithContext(ctx context.Context, key string, value []byte, lifetime time.Duration) error {
	_, err := s.pool.Exec(ctx, `
INSERT INTO responses (key, value, expires_at) VALUES ($1, $2, now() + $3::interval)
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, expires_at = EXCLUDED.expires_at`, key, value, lifetime)
	return err
}

func (s storage) DeleteWithContext(ctx context.Context, key string) error {
	_, err := s.pool.Exec(ctx, "DELETE FROM responses WHERE key = $1", key)
	return err
}

func (s storage) ResetWithContext(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "DELETE FROM responses")
	return err
}

func (s storage) Get(key string) ([]byte, error) {
	return s.GetWithContext(context.Background(), key)
}

func (s storage) Set(key string, value []byte, lifetime time.Duration) error {
	return s.SetWithContext(context.Background(), key, value, lifetime)
}

func (s storage) Delete(key string) error { return s.DeleteWithContext(context.Background(), key) }

func (s storage) Reset() error { return s.ResetWithContext(context.Background()) }

func (s storage) Close() error { return nil }
