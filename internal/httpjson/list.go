package httpjson

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Get returns the one row of a query, or [ErrNotFound].
func Get[T any](ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[T], query string, arguments ...any) (T, error) {
	row, err := pgx.CollectExactlyOneRow(postgres.Query(ctx, pool, query, arguments...), scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, ErrNotFound
	}
	if err != nil {
		return row, fmt.Errorf("read: %w", postgres.Translate(err))
	}
	return row, nil
}

// Page selects a part of a list.
type Page struct {
	Limit   int
	After   uuid.UUID // the last resource of the page before, or uuid.Nil
	Filters map[string]string
}

// Cursor is the place of a row in a list, which is sorted by time and id.
type Cursor struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Cursor returns the place of After, or without After the beginning of the list. created returns the
// time of a row.
func (p Page) Cursor(created func(id uuid.UUID) (Timestamp, error)) (Cursor, error) {
	if p.After == uuid.Nil {
		return Cursor{time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC), uuid.Max}, nil
	}
	at, err := created(p.After)
	if errors.Is(err, ErrNotFound) {
		err = Invalid("/after", CodeNotFound, "must be an id of this list")
	}
	return Cursor{at.Time, p.After}, err
}
