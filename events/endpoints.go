package events

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
)

// Errors of endpoints.
var (
	ErrInvalidURL = errors.New("an endpoint's URL is https://host/path without a user and a fragment, of at most 2048 characters; " +
		"http is for a loopback address only")
	ErrNoEndpoint = errors.New("the account has no endpoint")
)

// Endpoint is where an account's events are sent.
type Endpoint struct {
	AccountID      uuid.UUID
	ID             uuid.UUID
	URL            string
	SecretVersion  int
	RotatedAt      *time.Time // for a day, the version before signs too
	KeyFingerprint []byte
	CreatedAt      time.Time
	DisabledAt     *time.Time // nothing is sent until the endpoint is set again
	Attempt        int        // failed attempts in a row
	FailingSince   *time.Time
	LastError      string
}

const endpointColumns = `
       e.account_id,
       e.id,
       e.url,
       e.secret_version,
       e.rotated_at,
       e.key_fingerprint,
       e.created_at,
       e.disabled_at,
       e.attempt,
       e.failing_since,
       coalesce(e.last_error, '') AS last_error`

// Set creates the account's endpoint, or changes its URL and enables it. The endpoint keeps its id and its
// secret.
func Set(ctx context.Context, pool *pgxpool.Pool, keys Keys, accountID uuid.UUID, rawURL string) (e Endpoint, secret string, err error) {
	if !validURL(rawURL) {
		return e, "", ErrInvalidURL
	}
	e, err = endpoint(ctx, pool, `
INSERT INTO event_endpoints AS e (account_id, id, url, key_fingerprint)
VALUES ($1, $2, $3, $4)
    ON CONFLICT (account_id) DO UPDATE
   SET url           = excluded.url,
       disabled_at   = NULL,
       attempt       = 0,
       run_at        = excluded.run_at,
       failing_since = NULL,
       last_error    = NULL
RETURNING `+endpointColumns, accountID, uuid.New(), rawURL, keys[0].fingerprint())
	if postgres.SQLState(err) == postgres.ForeignKeyViolation {
		err = accounts.ErrAccountNotFound
	}
	if err == nil {
		secret, err = keys.printed(e)
	}
	return e, secret, err
}

// Rotate gives the account's endpoint a new secret. For a day, the secret before it signs too.
func Rotate(ctx context.Context, pool *pgxpool.Pool, keys Keys, accountID uuid.UUID) (e Endpoint, secret string, err error) {
	e, err = endpoint(ctx, pool, `
UPDATE event_endpoints AS e
   SET secret_version  = secret_version + 1,
       rotated_at      = now(),
       key_fingerprint = $2
 WHERE account_id = $1
RETURNING `+endpointColumns, accountID, keys[0].fingerprint())
	if err == nil {
		secret, err = keys.printed(e)
	}
	return e, secret, err
}

// List returns the account's endpoint, or those of all accounts if accountID is zero, the failing ones first.
func List(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID) ([]Endpoint, error) {
	list, err := postgres.Collect(ctx, pool, "list endpoints", pgx.RowToStructByName[Endpoint], "SELECT "+endpointColumns+`
  FROM event_endpoints AS e
 WHERE account_id = $1
    OR $1 = '00000000-0000-0000-0000-000000000000'
 ORDER BY failing_since NULLS LAST,
          account_id`, accountID)
	if err == nil && len(list) == 0 && accountID != uuid.Nil {
		err = ErrNoEndpoint
	}
	return list, err
}

// CountEndpoints counts the endpoints of all accounts.
func CountEndpoints(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, "SELECT count(*) FROM event_endpoints").Scan(&n)
	return n, postgres.Translate(err)
}

// Remove deletes the account's endpoint and the events that were not delivered.
func Remove(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID) error {
	tag, err := pool.Exec(ctx, `
WITH undelivered AS (
    DELETE FROM staged_jobs
     WHERE account_id = $1
       AND kind = 'event'
)
DELETE FROM event_endpoints
 WHERE account_id = $1`, accountID)
	switch {
	case err != nil:
		return fmt.Errorf("remove the endpoint: %w", postgres.Translate(err))
	case tag.RowsAffected() == 0:
		return ErrNoEndpoint
	}
	return nil
}

func endpoint(ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) (Endpoint, error) {
	rows, _ := pool.Query(ctx, query, arguments...) // CollectExactlyOneRow returns its error
	e, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Endpoint])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = ErrNoEndpoint
	case err != nil:
		err = fmt.Errorf("endpoint of the account: %w", postgres.Translate(err))
	}
	return e, err
}

func validURL(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || len(raw) > 2048 {
		return false
	}
	ip, _ := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip.IsLoopback())
}

// ReadStats counts the events of all accounts, for metrics, and returns since when each endpoint fails or is
// disabled. Events of such endpoints do not count as old, because the endpoint is reported instead. The last
// condition of the first query is always true, and makes PostgreSQL use the two partial indexes.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (s jobs.Stats, failing []Failing, err error) {
	err = pool.QueryRow(ctx, `
SELECT count(*) FILTER (WHERE j.failed_at IS NULL),
       greatest(now() - min(j.created_at) FILTER (WHERE j.failed_at IS NULL AND e.failing_since IS NULL), interval '0'),
       count(j.failed_at)
  FROM staged_jobs AS j
  JOIN event_endpoints AS e
    ON e.account_id = j.account_id
 WHERE j.kind = 'event'
   AND (j.failed_at IS NULL OR j.failed_at IS NOT NULL)`).Scan(&s.Pending, &s.Oldest, &s.Failed)
	if err != nil {
		return s, nil, fmt.Errorf("count events: %w", err)
	}
	failing, err = postgres.Collect(ctx, pool, "list failing endpoints", pgx.RowToStructByPos[Failing], `
SELECT id,
       now() - failing_since
  FROM event_endpoints
 WHERE failing_since IS NOT NULL`)
	return s, failing, err
}

// Failing is an endpoint that has not accepted an event for some time.
type Failing struct {
	Endpoint uuid.UUID
	For      time.Duration
}
