// Command fiber serves a small API behind the idempotency middleware of Fiber. A charge is
// a line of the file that -charges names, so it outlives the process.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
)

// server counts a charge as executed when its line is written.
type server struct {
	mu   sync.Mutex
	file string
}

type charge struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  int    `json:"amount"`
}

type chargeRequest struct {
	Amount int    `json:"amount"`
	Card   string `json:"card"`
	Delay  int    `json:"delay_ms"` // before the charge, and again after it
}

func main() {
	address := flag.String("addr", "127.0.0.1:0", "address to listen on")
	file := flag.String("charges", "", "the `file` of the charges")
	flag.Parse()
	s := &server{file: *file}
	app := fiber.New()
	app.Use(authenticate)
	app.Get("/charges", s.list)
	app.Use(idempotency.New(idempotency.Config{
		KeyHeader:         "Idempotency-Key",
		KeyHeaderValidate: validateKey,
		Lifetime:          24 * time.Hour,
	}))
	app.Post("/charges", s.create)
	app.Post("/refunds", func(c fiber.Ctx) error { return c.SendStatus(fiber.StatusNotFound) })
	log.Fatal(app.Listen(*address, fiber.ListenConfig{DisableStartupMessage: true}))
}

// validateKey replaces the default, which accepts only 36 characters.
func validateKey(key string) error {
	if len(key) < 16 || len(key) > 255 {
		return fiber.NewError(fiber.StatusBadRequest, "the key must have 16 to 255 characters")
	}
	return nil
}

func authenticate(c fiber.Ctx) error {
	account, ok := map[string]string{"Bearer one": "1", "Bearer uno": "1", "Bearer two": "2"}[c.Get("Authorization")]
	if !ok {
		return c.SendStatus(fiber.StatusUnauthorized)
	}
	c.Locals("account", account)
	return c.Next()
}

func (s *server) create(c fiber.Ctx) error {
	var r chargeRequest
	if err := json.Unmarshal(c.Body(), &r); err != nil {
		return fiber.NewError(fiber.StatusBadRequest, "the body is not JSON") // the middleware does not store it
	}
	if r.Amount < 1 {
		return fiber.NewError(fiber.StatusUnprocessableEntity, "amount must be positive")
	}
	if r.Card == "declined" {
		return c.Status(fiber.StatusPaymentRequired).JSON(fiber.Map{"error": "declined", "id": newID()})
	}
	time.Sleep(time.Duration(r.Delay) * time.Millisecond)
	account, _ := c.Locals("account").(string)
	made := charge{newID(), account, r.Amount}
	if err := s.append(made); err != nil {
		return err
	}
	time.Sleep(time.Duration(r.Delay) * time.Millisecond)
	c.Location("/charges/" + made.ID)
	return c.Status(fiber.StatusCreated).JSON(made)
}

func newID() string { return "ch_" + strconv.FormatInt(time.Now().UnixNano(), 36) }

func (s *server) append(made charge) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.OpenFile(s.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	line, err := json.Marshal(made)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s\n", line)
	return err
}

func (s *server) list(c fiber.Ctx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := []charge{}
	file, err := os.Open(s.file)
	if errors.Is(err, os.ErrNotExist) {
		return c.JSON(fiber.Map{"data": made})
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var one charge
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		if one.Account == c.Locals("account") {
			made = append(made, one)
		}
	}
	return c.JSON(fiber.Map{"data": made})
}
