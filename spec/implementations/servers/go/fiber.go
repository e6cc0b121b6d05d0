package main

import (
	"os"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/storage/redis/v3"
)

// serveFiber has the idempotency middleware of Fiber, as its page describes it.
func serveFiber() error {
	config := idempotency.Config{KeyHeaderValidate: func(string) error { return nil }} // the default accepts only UUIDs with hyphens
	if os.Getenv("STORE") == "redis" {
		config.Storage = redis.New(redis.Config{URL: os.Getenv("REDIS_URL")})
	}
	if seconds, err := strconv.Atoi(os.Getenv("LIFETIME")); err == nil {
		config.Lifetime = time.Duration(seconds) * time.Second
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		account := accountOf(c.Get("Authorization"))
		if account == "" {
			return c.SendStatus(fiber.StatusUnauthorized)
		}
		c.Locals("account", account)
		return c.Next()
	})
	app.Use(idempotency.New(config))
	app.Post("/charges", chargeFiber)
	app.Post("/refunds", func(c fiber.Ctx) error { return c.SendStatus(fiber.StatusNotFound) })
	return app.Listen(os.Getenv("ADDR"), fiber.ListenConfig{DisableStartupMessage: true})
}

func chargeFiber(c fiber.Ctx) error {
	account, _ := c.Locals("account").(string)
	answered, err := charge(account, c.Body())
	if err != nil {
		return err
	}
	if answered.Status >= 400 && answered.Status != fiber.StatusPaymentRequired {
		return fiber.NewError(answered.Status) // the middleware does not store an error
	}
	if answered.Location != "" {
		c.Location(answered.Location)
	}
	return c.Status(answered.Status).JSON(answered.Body)
}
