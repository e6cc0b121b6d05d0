// Command cache serves orders behind the idempotency middleware of Fiber, https://gofiber.io.
//
// The middleware (https://docs.gofiber.io/api/middleware/idempotency) stores the response of a
// handler by the request's key, and answers a later request with it. While a handler runs, it
// holds a lock in the memory of the process. The handler itself does nothing for retries, as in
// the middleware's documentation: it inserts a new order, and its keys at Stripe are derived
// from that order. Errors are not stored, so a client can send the request again.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/lab/peers/programs/shop"
)

const lifetime = 72 * time.Hour // of a response, as in the orders API

func main() { shop.Main(run) }

func run(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, responses); err != nil {
		return err
	}
	s := &server{pool: pool, stripe: shop.NewProvider(2)}
	app := fiber.New()
	app.Get("/healthz", func(fiber.Ctx) error { return nil })
	app.Post("/v1/orders", idempotency.New(idempotency.Config{
		KeyHeader:         "Idempotency-Key",
		KeyHeaderValidate: func(string) error { return nil }, // the default accepts UUIDs only
		Lifetime:          lifetime,
		Storage:           storage{pool},
	}), s.createOrder)
	return app.Listen(shop.Address(), fiber.ListenConfig{
		GracefulContext:       ctx,
		DisableStartupMessage: true,
	})
}

type server struct {
	pool   *pgxpool.Pool
	stripe shop.Provider
}

func (s *server) createOrder(c fiber.Ctx) error {
	o, err := shop.Parse(c.Body(), uuid.NewString()) // not the client's key
	if err != nil {
		return fiber.NewError(http.StatusBadRequest, err.Error())
	}
	r, err := s.pay(c.Context(), o)
	if err != nil {
		slog.WarnContext(c.Context(), "the order is not finished", "error", err)
		return fiber.NewError(http.StatusServiceUnavailable, "send the same request again")
	}
	if r.Status == shop.StatusFailed {
		return c.Status(http.StatusPaymentRequired).JSON(fiber.Map{"status": http.StatusPaymentRequired, "detail": r.FailureCode})
	}
	return c.Status(http.StatusCreated).JSON(shop.Response(o, r))
}

func (s *server) pay(ctx context.Context, o shop.Order) (shop.Result, error) {
	r, err := shop.Insert(ctx, s.pool, o)
	if err != nil {
		return r, err
	}
	intentID, err := s.stripe.Create(ctx, o)
	if err != nil {
		return r, err
	}
	if r, err = s.stripe.Confirm(ctx, o, intentID); err != nil {
		return r, err
	}
	return r, shop.Finish(ctx, s.pool, o.ID, r)
}

const responses = `
CREATE TABLE IF NOT EXISTS responses (
    key        text        PRIMARY KEY,
    value      bytea       NOT NULL,
    expires_at timestamptz NOT NULL
)`

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
