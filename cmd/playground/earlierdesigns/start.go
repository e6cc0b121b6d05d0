package earlierdesigns

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"
)

// DropTables drops the tables of both designs.
const DropTables = `
DROP SCHEMA IF EXISTS lock_design CASCADE;
DROP SCHEMA IF EXISTS one_call_design CASCADE;
`

// CreateTables creates the tables of both designs, empty and in schemas of their own.
func CreateTables(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, DropTables+`
CREATE SCHEMA lock_design;
CREATE TABLE lock_design.orders (
    id integer GENERATED ALWAYS AS IDENTITY
);
CREATE SCHEMA one_call_design;
CREATE TABLE one_call_design.orders (
    key     text PRIMARY KEY,
    attempt integer NOT NULL DEFAULT 1,
    paid    boolean NOT NULL DEFAULT false
);
`)
	return err
}

// Stripe returns a client of a fake. Each request has its own connection, because net/http may resend
// a request when a reused connection breaks.
func Stripe(url string) paymentintent.Client {
	return paymentintent.Client{Key: "sk_test_earlier", B: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String(url),
		HTTPClient:        &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute},
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})}
}
