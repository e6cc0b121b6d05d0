//go:build unix

// Command shop runs the example shop, the API, a fake Stripe and a private PostgreSQL for
// check.mjs, which can kill the first two: make -C lab shop-check.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
	"example.com/orders-api/examples/shop"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/payments/stripetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := serveShop
	if len(os.Args) == 3 { // the program orders and a folder
		run = serveAll
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}

// serveShop is the process of the shop, which its parent configures and kills.
func serveShop(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := shop.Migrate(ctx, pool); err != nil {
		return err
	}
	orders, err := client.New(client.Config{BaseURL: os.Getenv("API"), APIKey: os.Getenv("API_KEY"), MaxBackoff: time.Second})
	if err != nil {
		return err
	}
	storefront := shop.New(shop.Config{
		Pool: pool, Orders: orders, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		PublishableKey: "pk_test_fake", FakeStripe: os.Getenv("FAKE_STRIPE"), Patience: 3 * time.Second, Idle: time.Second,
	})
	go storefront.Run(ctx)
	server := &http.Server{Addr: os.Getenv("ADDRESS"), Handler: storefront, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveAll prints the addresses of the shop and of the control server, and serves until it
// is stopped.
func serveAll(ctx context.Context) (err error) {
	program, folder := os.Args[1], os.Args[2]
	database, err := embeddedpg.Start(ctx, embeddedpg.Options{BinDir: os.Getenv("PG_BIN"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Stop()) }()
	stripe := stripetest.New(stripetest.Options{})
	defer stripe.Close()
	fake, err := listen(ctx, stripe)
	if err != nil {
		return err
	}
	var addresses [2]string
	for i := range addresses {
		if addresses[i], err = subprocess.FreeAddress(ctx); err != nil {
			return err
		}
	}
	// The shortest durations in their order (R9), so that a lease ends soon after a kill.
	environ := []string{
		"DATABASE_URL=" + database.URL("postgres"), "STRIPE_SECRET_KEY=sk_test_fake", "STRIPE_API_BASE=" + fake, "LISTEN_ADDR=" + addresses[0],
		"ADMIN_ADDR=", "STEP_TIMEOUT=2s", "LEASE_DURATION=3s", "COMPLETER_GRACE=4s",
	}
	var output string
	for _, args := range [][]string{{"migrate", "up"}, {"accounts", "create", "--name", "shop"}} {
		command := exec.CommandContext(ctx, program, args...) //nolint:gosec // our own program
		command.Env = environ
		text, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("orders %s: %w\n%s", args[0], err, text)
		}
		output = string(text)
	}
	words := strings.Fields(output)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	api := &subprocess.Process{Name: "api", Executable: program, Args: []string{"serve"}, Environ: environ, Log: filepath.Join(folder, "api.log")}
	storefront := &subprocess.Process{Name: "shop", Executable: self, Log: filepath.Join(folder, "shop.log"), Environ: []string{
		"DATABASE_URL=" + database.URL("postgres"), "API=http://" + addresses[0], "API_KEY=" + words[len(words)-1],
		"FAKE_STRIPE=" + fake, "ADDRESS=" + addresses[1],
	}}
	starts := map[string]func() error{
		"api":  func() error { return api.Serve(ctx, "http://"+addresses[0]+"/readyz") },
		"shop": func() error { return storefront.Serve(ctx, "http://"+addresses[1]+shop.Path) },
	}
	kills := map[string]func() error{"api": api.Kill, "shop": storefront.Kill}
	defer func() { err = errors.Join(err, storefront.Kill(), api.Kill()) }()
	if err := errors.Join(starts["api"](), starts["shop"]()); err != nil {
		return err
	}

	control := http.NewServeMux()
	control.HandleFunc("GET /charges", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(stripe.Charges()) })
	control.HandleFunc("POST /slow/{delay}", func(_ http.ResponseWriter, r *http.Request) { // the next charge
		delay, _ := time.ParseDuration(r.PathValue("delay"))
		stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Delay: delay, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
	})
	do := func(actions map[string]func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := actions[r.PathValue("process")](); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}
	control.HandleFunc("POST /kill/{process}", do(kills))
	control.HandleFunc("POST /start/{process}", do(starts))
	controls, err := listen(ctx, control)
	if err != nil {
		return err
	}
	fmt.Println("http://"+addresses[1]+shop.Path, controls)
	<-ctx.Done()
	return nil
}

// listen serves handler on a free port until the process ends, and returns its URL.
func listen(ctx context.Context, handler http.Handler) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}
