// Command cache serves orders behind the idempotency middleware of Fiber, https://gofiber.io.
//
// The middleware (https://docs.gofiber.io/api/middleware/idempotency) stores the response of a
// handler by the request's key, and answers a later request with it. While a handler runs, it
// holds a lock in the memory of the process. The handler itself does nothing for retries, as in
// the middleware's documentation: it inserts a new order, and its keys at Stripe are derived
// from that order. Errors are not stored, so a client can send the request again.
package main

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	maxConnections = 20
	lifetime       = 72 * time.Hour // of a response, as in the orders API
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the server has failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	config.MaxConns = maxConnections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	s := &server{pool: pool, stripe: newStripe()}
	app := fiber.New()
	app.Get("/healthz", func(fiber.Ctx) error { return nil })
	app.Post("/v1/orders", idempotency.New(idempotency.Config{
		KeyHeader:         "Idempotency-Key",
		KeyHeaderValidate: func(string) error { return nil }, // the default accepts UUIDs only
		Lifetime:          lifetime,
		Storage:           storage{pool},
	}), s.createOrder)
	return app.Listen(cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"), fiber.ListenConfig{
		GracefulContext:       ctx,
		DisableStartupMessage: true,
	})
}

type server struct {
	pool   *pgxpool.Pool
	stripe provider
}

func (s *server) createOrder(c fiber.Ctx) error {
	o, err := parseOrder(c.Body())
	if err != nil {
		return fiber.NewError(http.StatusBadRequest, err.Error())
	}
	failureCode, err := s.pay(c.Context(), &o)
	if err != nil {
		slog.WarnContext(c.Context(), "the order is not finished", "error", err)
		return fiber.NewError(http.StatusServiceUnavailable, "send the same request again")
	}
	if failureCode != "" {
		return c.Status(http.StatusPaymentRequired).JSON(fiber.Map{"status": http.StatusPaymentRequired, "detail": failureCode})
	}
	return c.Status(http.StatusCreated).JSON(o)
}

// pay returns the code of a decline.
func (s *server) pay(ctx context.Context, o *order) (failureCode string, err error) {
	_, err = s.pool.Exec(ctx, insertOrder, o.ID, o.Email, o.Currency, o.Amount, o.Items, o.Metadata, o.PaymentMethod)
	if err != nil {
		return "", err
	}
	if o.IntentID, err = s.stripe.create(ctx, *o); err != nil {
		return "", err
	}
	if failureCode, err = s.stripe.confirm(ctx, *o, o.IntentID); err != nil {
		return "", err
	}
	if failureCode != "" {
		_, err = s.pool.Exec(ctx, markFailed, o.ID, o.IntentID, failureCode)
		return failureCode, err
	}
	o.Status = "paid"
	_, err = s.pool.Exec(ctx, markPaid, o.ID, o.IntentID)
	return "", err
}
