package earlierdesigns_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"

	"example.com/orders-api/cmd/playground/earlierdesigns"
	"example.com/orders-api/lab/labtest"
	"example.com/orders-api/payments/stripetest"
)

const createRideTables = `
CREATE TABLE keys (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key            text NOT NULL UNIQUE,
    recovery_point text NOT NULL DEFAULT 'started',
    locked_at      timestamptz DEFAULT now(),
    response_code  integer NOT NULL DEFAULT 0
);
CREATE TABLE rides (
    key_id  bigint NOT NULL UNIQUE,
    charged boolean NOT NULL DEFAULT false
);
CREATE TABLE staged_receipts (
    key_id bigint NOT NULL
);
`

// RideShop follows api.rb of rocket-rides-atomic. A request is a loop of phases. Each phase is a
// serializable transaction that also moves the recovery point, and the call to Stripe is inside of one.
type RideShop struct {
	DB     *pgxpool.Pool
	Stripe paymentintent.Client
}

type rideKey struct {
	id       int64
	point    string
	response int
}

// Order executes or continues a request, and returns its response. The completer calls it, too.
func (s RideShop) Order(ctx context.Context, key string) (response int, err error) {
	var k rideKey
	err = s.DB.QueryRow(ctx, `
INSERT INTO keys (key)
VALUES ($1)
    ON CONFLICT (key) DO UPDATE
   SET locked_at = CASE WHEN keys.recovery_point <> 'finished' THEN now() END
 WHERE keys.locked_at IS NULL
    OR keys.locked_at < now() - interval '90 seconds'
RETURNING id, recovery_point, response_code`, key).Scan(&k.id, &k.point, &k.response)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, earlierdesigns.ErrInProgress
	}
	for err == nil && k.point != "finished" {
		err = s.phase(ctx, &k, func(tx pgx.Tx) (rideKey, error) {
			switch k.point {
			case "started":
				_, err := tx.Exec(ctx, "INSERT INTO rides (key_id) VALUES ($1)", k.id)
				return rideKey{point: "ride_created"}, err
			case "ride_created":
				failed := earlierdesigns.Charge(ctx, s.Stripe, fmt.Sprintf("rocket-rides-atomic-%d", k.id))
				if refused, ok := errors.AsType[*stripe.Error](failed); ok && refused.Type == stripe.ErrorTypeCard {
					return rideKey{point: "finished", response: http.StatusPaymentRequired}, nil
				}
				if failed != nil {
					return rideKey{point: "finished", response: http.StatusServiceUnavailable}, nil
				}
				_, err := tx.Exec(ctx, "UPDATE rides SET charged = true WHERE key_id = $1", k.id)
				return rideKey{point: "charge_created"}, err
			default: // charge_created
				_, err := tx.Exec(ctx, "INSERT INTO staged_receipts (key_id) VALUES ($1)", k.id)
				return rideKey{point: "finished", response: http.StatusCreated}, err
			}
		})
	}
	return k.response, err
}

// phase commits work together with the next recovery point. An error unlocks the key for the next attempt.
func (s RideShop) phase(ctx context.Context, k *rideKey, work func(pgx.Tx) (rideKey, error)) error {
	var next rideKey
	err := pgx.BeginTxFunc(ctx, s.DB, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) (err error) {
		if next, err = work(tx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
UPDATE keys
   SET recovery_point = $2,
       response_code  = $3,
       locked_at      = CASE WHEN $2 <> 'finished' THEN locked_at END
 WHERE id = $1`, k.id, next.point, next.response)
		return err
	})
	if err != nil {
		_, unlocked := s.DB.Exec(ctx, "UPDATE keys SET locked_at = NULL WHERE id = $1", k.id)
		return errors.Join(err, unlocked)
	}
	k.point, k.response = next.point, next.response
	return nil
}

// PaidOrders returns the number of charged rides.
func (s RideShop) PaidOrders(ctx context.Context) (n int, err error) {
	return n, s.DB.QueryRow(ctx, "SELECT count(*) FROM rides WHERE charged").Scan(&n)
}

func newRideShop(t *testing.T) (RideShop, *stripetest.Server) {
	t.Helper()
	db, provider, url := newServices(t)
	_, err := db.Exec(t.Context(), createRideTables)
	require.NoError(t, err)
	return RideShop{DB: db, Stripe: earlierdesigns.Stripe(url)}, provider
}

// The design does what it promises while the provider has its key: an error after the charge makes no second
// one.
func TestPublished_withinADay(t *testing.T) {
	t.Parallel()
	shop, provider := newRideShop(t)
	_, err := shop.DB.Exec(t.Context(), "ALTER TABLE rides ADD CONSTRAINT bug CHECK (NOT charged)")
	require.NoError(t, err)
	_, err = shop.Order(t.Context(), key)
	require.Error(t, err)
	_, err = shop.DB.Exec(t.Context(), "ALTER TABLE rides DROP CONSTRAINT bug")
	require.NoError(t, err)
	for range 2 {
		response, err := shop.Order(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, response)
	}
	requireCharges(t, provider, 1)
	requireOrders(t, 1, shop, "the charge has its ride")
}

// A bug that was deployed on Friday fails each request after its charge, until it is fixed on Monday.
// Meanwhile, clients or the completer repeat the request.
func TestBugOverTheWeekend(t *testing.T) {
	t.Parallel()
	const passes, pause = 10, 6 * time.Hour
	t.Run("published design", func(t *testing.T) {
		t.Parallel()
		shop, provider := newRideShop(t)
		_, err := shop.DB.Exec(t.Context(), "ALTER TABLE rides ADD CONSTRAINT bug CHECK (NOT charged)")
		require.NoError(t, err)
		for range passes {
			_, err := shop.Order(t.Context(), key)
			require.Error(t, err)
			provider.Advance(pause)
		}
		_, err = shop.DB.Exec(t.Context(), "ALTER TABLE rides DROP CONSTRAINT bug")
		require.NoError(t, err)
		response, err := shop.Order(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, response)
		requireCharges(t, provider, 3) // one for each time that the provider had forgotten the key
		requireOrders(t, 1, shop, "two charges have no ride")
	})
	t.Run("this project", func(t *testing.T) {
		t.Parallel()
		f := labtest.NewFixture(t)
		api := f.Serve(f.Environ)
		f.Exec("ALTER TABLE orders ADD CONSTRAINT bug CHECK (status <> 'paid')")
		for range passes {
			response, err := api.Order(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, http.StatusInternalServerError, response.Status, response.Body)
			pass(f, pause)
		}
		f.Exec("ALTER TABLE orders DROP CONSTRAINT bug")
		requirePaid(t, api)
		requireCharges(t, f.Stripe, 1)
	})
}

// The provider charges the card, and its response is lost.
func TestResponseOfChargeLost(t *testing.T) {
	t.Parallel()
	t.Run("published design", func(t *testing.T) {
		t.Parallel()
		shop, provider := newRideShop(t)
		provider.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: create})
		for range 3 {
			response, err := shop.Order(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, response, "stored")
		}
		requireCharges(t, provider, 1)
		requireOrders(t, 0, shop, "the customer paid, and no retry finds out")
	})
	t.Run("this project", func(t *testing.T) {
		t.Parallel()
		f := labtest.NewFixture(t)
		api := f.Serve(f.Environ)
		f.Stripe.Inject(stripetest.Rule{Fault: stripetest.CloseAfter, Endpoint: confirm})
		requirePaid(t, api)
		requireCharges(t, f.Stripe, 1)
	})
}
