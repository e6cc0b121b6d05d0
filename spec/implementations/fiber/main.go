// Command fiber has the idempotency middleware of Fiber, as its page describes it.
package main

import (
	"log"
	"os"
	"strconv"
	"time"

	fixture "example.com/orders-api/spec/implementations/fixtures/go"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/storage/redis/v3"
)

func main() {
	config := idempotency.Config{KeyHeaderValidate: func(string) error { return nil }} // the default accepts only UUIDs with hyphens
	if os.Getenv("STORE") == "redis" {
		config.Storage = redis.New(redis.Config{URL: os.Getenv("REDIS_URL")})
	}
	if seconds, err := strconv.Atoi(os.Getenv("LIFETIME")); err == nil {
		config.Lifetime = time.Duration(seconds) * time.Second
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		account := fixture.Account(c.Get("Authorization"))
		if account == "" {
			return c.SendStatus(fiber.StatusUnauthorized)
		}
		c.Locals("account", account)
		return c.Next()
	})
	app.Use(idempotency.New(config))
	app.Post("/charges", charge)
	app.Post("/refunds", func(c fiber.Ctx) error { return c.SendStatus(fiber.StatusNotFound) })
	log.Fatal(app.Listen(os.Getenv("ADDR"), fiber.ListenConfig{DisableStartupMessage: true}))
}

func charge(c fiber.Ctx) error {
	account, _ := c.Locals("account").(string)
	answer, err := fixture.Charge(account, c.Body())
	if err != nil {
		return err
	}
	if answer.Status >= 400 && answer.Status != fiber.StatusPaymentRequired {
		return fiber.NewError(answer.Status) // the middleware does not store an error
	}
	if answer.Location != "" {
		c.Location(answer.Location)
	}
	return c.Status(answer.Status).JSON(answer.Body)
}
