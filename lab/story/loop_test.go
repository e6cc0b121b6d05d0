package story_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"

	"example.com/orders-api/cmd/playground/earlierdesigns"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/payments/stripetest"
)

// This file is the design of docs/how-it-works.md in its smallest form, on the page's table and fence. It
// leaves out declines, approvals, the lost COMMIT and the end of keys.

const (
	createKeys = `CREATE TABLE idempotency_keys (
    idempotency_key text PRIMARY KEY,     -- chosen by the client
    fingerprint     bytea NOT NULL,       -- hash of the request; another request is rejected
    recovery_point  text NOT NULL,        -- how far the request has come
    lease_token     uuid NOT NULL,        -- the run that may write, new for each run
    locked_at       timestamptz,          -- when the lease was last renewed; NULL if no run works on it
    response_code   integer,              -- stored with the exact bytes of the response
    response_body   bytea                 -- (the real table has more columns)
);
`

	createOrders = `
CREATE TABLE orders (
    idempotency_key text PRIMARY KEY,
    intent          text,
    paid            boolean NOT NULL DEFAULT false
);`

	// claim inserts the row, or takes it over if no run holds its lease.
	claim = `
INSERT INTO idempotency_keys AS held (idempotency_key, fingerprint, recovery_point, lease_token, locked_at)
VALUES ($1, $2, 'order_created', $3, now())
    ON CONFLICT (idempotency_key) DO UPDATE
   SET lease_token = $3,
       locked_at   = now()
 WHERE held.fingerprint = $2
   AND held.recovery_point <> 'finished'
   AND (held.locked_at IS NULL OR held.locked_at <= now() - interval '90 seconds')
RETURNING recovery_point`

	fence = `UPDATE idempotency_keys
   SET recovery_point = $4,
       locked_at      = CASE WHEN $4 <> 'finished' THEN now() END,
       response_code  = $5,
       response_body  = $6
 WHERE idempotency_key = $1
   AND lease_token = $2         -- this run holds the key
   AND recovery_point = $3      -- this step is not recorded yet
   AND locked_at IS NOT NULL    -- the key is not released
RETURNING locked_at;
`
)

var (
	errInProgress = errors.New("another run holds the key")
	errReused     = errors.New("the key is that of another request")
	errLeaseLost  = errors.New("another run has taken the key over")
)

// Shop creates orders and charges them.
type Shop struct {
	db     *pgxpool.Pool
	stripe paymentintent.Client
}

type run struct {
	key   string
	token uuid.UUID
	point string // the recovery point
	code  *int   // of the response
	body  []byte
}

// result is what a step found out, for the transaction that records it.
type result struct {
	point, intent string
	code          *int
	body          []byte
}

// Order executes a request, or continues it, until its response is stored, and returns status and
// body. ctx has a deadline, and outlives the client's connection.
func (s *Shop) Order(ctx context.Context, key string, hash []byte) (int, []byte, error) {
	r, err := s.claim(ctx, key, hash) // or, if the key is finished, reads its response
	if err != nil {
		return statusOf(err), nil, err
	}
	for r.point != "finished" {
		found, err := s.step(ctx, r) // calls Stripe, outside of any transaction
		if err == nil {
			err = s.commit(ctx, r, found) // unless the run has lost its lease (the fence, below)
		}
		if err != nil {
			s.release(r) // ends our own lease; the recovery point stays for a retry
			return statusOf(err), nil, err
		}
	}
	return *r.code, r.body, nil
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, errInProgress), errors.Is(err, errLeaseLost):
		return http.StatusConflict
	case errors.Is(err, errReused):
		return http.StatusUnprocessableEntity
	default:
		return http.StatusServiceUnavailable
	}
}

func (s *Shop) claim(ctx context.Context, key string, hash []byte) (*run, error) {
	r := &run{key: key, token: uuid.New()}
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, claim, key, hash, r.token).Scan(&r.point); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO orders (idempotency_key) VALUES ($1) ON CONFLICT DO NOTHING", key)
		return err
	})
	if !errors.Is(err, pgx.ErrNoRows) {
		return r, err
	}
	var same bool
	err = s.db.QueryRow(ctx, `
SELECT fingerprint = $2, recovery_point, response_code, response_body
  FROM idempotency_keys
 WHERE idempotency_key = $1`, key, hash).Scan(&same, &r.point, &r.code, &r.body)
	switch {
	case err != nil:
		return r, err
	case !same:
		return r, errReused
	case r.point != "finished":
		return r, errInProgress
	default:
		return r, nil
	}
}

func (s *Shop) step(ctx context.Context, r *run) (result, error) {
	switch r.point {
	case "order_created":
		params := &stripe.PaymentIntentParams{
			Params:             stripe.Params{Context: ctx, IdempotencyKey: stripe.String(r.key + "-create")},
			Amount:             stripe.Int64(2500),
			Currency:           stripe.String("usd"),
			PaymentMethod:      stripe.String("pm_card_visa"),
			PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
		}
		intent, err := s.stripe.New(params)
		if err != nil {
			return result{}, err
		}
		return result{point: "charge_created", intent: intent.ID}, nil
	case "charge_created":
		var id string
		if err := s.db.QueryRow(ctx, "SELECT intent FROM orders WHERE idempotency_key = $1", r.key).Scan(&id); err != nil {
			return result{}, err
		}
		intent, err := s.stripe.Get(id, &stripe.PaymentIntentParams{Params: stripe.Params{Context: ctx}})
		if err == nil && intent.Status == stripe.PaymentIntentStatusRequiresConfirmation {
			params := &stripe.PaymentIntentConfirmParams{Params: stripe.Params{Context: ctx, IdempotencyKey: stripe.String(r.key + "-confirm")}}
			intent, err = s.stripe.Confirm(id, params)
		}
		if err == nil && intent.Status != stripe.PaymentIntentStatusSucceeded {
			err = fmt.Errorf("the intent is %s", intent.Status)
		}
		return result{point: "finished", intent: id, code: new(http.StatusCreated), body: []byte("paid")}, err
	default:
		return result{}, fmt.Errorf("only a newer version knows %q", r.point)
	}
}

func (s *Shop) commit(ctx context.Context, r *run, found result) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var lockedAt *time.Time
		err := tx.QueryRow(ctx, fence, r.key, r.token, r.point, found.point, found.code, found.body).Scan(&lockedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return errLeaseLost
		}
		if err != nil {
			return err
		}
		r.point, r.code, r.body = found.point, found.code, found.body
		_, err = tx.Exec(ctx, "UPDATE orders SET intent = $2, paid = $3 WHERE idempotency_key = $1", r.key, found.intent, found.code != nil)
		return err
	})
}

func (s *Shop) release(r *run) {
	_, _ = s.db.Exec(context.Background(), "UPDATE idempotency_keys SET locked_at = NULL WHERE idempotency_key = $1 AND lease_token = $2", r.key, r.token)
}

// The page shows the table, the claim, the loop and the fence.
func TestLoop_page(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("loop_test.go")
	require.NoError(t, err)
	loop := regexp.MustCompile(`(?s)// Order executes.*?\n}\n`).Find(program)
	require.NotEmpty(t, loop)
	compare(t, "keys", "```sql\n"+createKeys+"```\n")
	compare(t, "claim", "```sql"+claim+";\n```\n")
	compare(t, "loop", "```go\n"+string(loop)+"```\n")
	compare(t, "fence", "```sql\n"+fence+"```\n")
}

func newShop(t *testing.T) (*Shop, *stripetest.Server) {
	t.Helper()
	db := dbtest.Empty(t)
	_, err := db.Exec(t.Context(), createKeys+createOrders)
	require.NoError(t, err)
	provider := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	t.Cleanup(provider.Close) // before server.Close, which waits for held requests
	return &Shop{db: db, stripe: earlierdesigns.Stripe(server.URL)}, provider
}

func TestLoop_responseLost(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{create, confirm} {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			shop, provider := newShop(t)
			provider.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: endpoint})
			code, _, err := shop.Order(t.Context(), key, []byte("tea"))
			require.Error(t, err)
			require.Equal(t, http.StatusServiceUnavailable, code)
			for range 2 {
				code, body, err := shop.Order(t.Context(), key, []byte("tea"))
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, code)
				require.Equal(t, "paid", string(body))
			}
			code, _, err = shop.Order(t.Context(), key, []byte("coffee"))
			require.ErrorIs(t, err, errReused)
			require.Equal(t, http.StatusUnprocessableEntity, code)
			require.Len(t, provider.Charges(), 1)
		})
	}
}

func TestLoop_leaseLost(t *testing.T) {
	t.Parallel()
	shop, provider := newShop(t)
	held := provider.Inject(stripetest.Rule{Fault: stripetest.HoldResponse, Endpoint: confirm})
	first := make(chan error, 1)
	go func() {
		_, _, err := shop.Order(t.Context(), key, []byte("tea"))
		first <- err
	}()
	<-held.Reached()
	code, _, err := shop.Order(t.Context(), key, []byte("tea"))
	require.ErrorIs(t, err, errInProgress)
	require.Equal(t, http.StatusConflict, code)
	_, err = shop.db.Exec(t.Context(), "UPDATE idempotency_keys SET locked_at = locked_at - interval '1 hour'")
	require.NoError(t, err)
	code, _, err = shop.Order(t.Context(), key, []byte("tea"))
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, code)
	held.Release()
	require.ErrorIs(t, <-first, errLeaseLost)
	require.Len(t, provider.Charges(), 1)
}
