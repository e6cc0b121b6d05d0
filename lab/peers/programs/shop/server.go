package shop

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	maxConnections = 20               // the default of DBOS
	waitTimeout    = 30 * time.Second // of a client
	maxBody        = 1 << 20
)

// Main calls run with a context that ends with the process, and a pool with the tables.
func Main(run func(ctx context.Context, pool *pgxpool.Pool) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := open(ctx, run); err != nil {
		slog.ErrorContext(ctx, "the server has failed", "error", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func open(ctx context.Context, run func(ctx context.Context, pool *pgxpool.Pool) error) error {
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
	return run(ctx, pool)
}

// Logger logs warnings.
func Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Address is where the peer listens.
func Address() string { return cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080") }

// Serve serves until ctx ends. place returns the result of an order's key, of which only one
// run may charge.
func Serve(ctx context.Context, place func(context.Context, Order) (Result, error)) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/orders", Handler(place))
	return Listen(ctx, &http.Server{Handler: mux})
}

// Listen serves until ctx ends.
func Listen(ctx context.Context, api *http.Server) error {
	api.Addr, api.ReadHeaderTimeout = Address(), 10*time.Second
	context.AfterFunc(ctx, func() { _ = api.Shutdown(context.WithoutCancel(ctx)) })
	if err := api.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler answers POST /v1/orders with the result that place returns.
func Handler(place func(context.Context, Order) (Result, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := parse(w, r)
		if err != nil {
			problem(w, http.StatusBadRequest, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
		defer cancel()
		found, err := place(ctx, o)
		switch {
		case err != nil:
			slog.WarnContext(ctx, "the order is not finished", "error", err)
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusServiceUnavailable, "send the same request again")
		case !bytes.Equal(found.Hash, o.Hash):
			problem(w, http.StatusUnprocessableEntity, "the key belongs to another request")
		case found.Status == StatusFailed:
			problem(w, http.StatusPaymentRequired, found.FailureCode)
		default:
			writeJSON(w, http.StatusCreated, Response(o, found))
		}
	}
}

// Response is the final response, which is always the same for an order.
func Response(o Order, r Result) map[string]any {
	return map[string]any{
		"id": o.ID, "status": r.Status, "amount": o.Amount, "currency": o.Currency, "email": o.Email,
		"items": o.Items, "metadata": o.Metadata, "payment_intent_id": r.IntentID,
	}
}

func parse(w http.ResponseWriter, r *http.Request) (Order, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return Order{}, err
	}
	return Parse(body, r.Header.Get("Idempotency-Key"))
}

// Parse decodes an order, whose id is derived from its key.
func Parse(body []byte, key string) (Order, error) {
	var o Order
	if err := json.Unmarshal(body, &o); err != nil {
		return o, err
	}
	hash := sha256.Sum256(body)
	o.Key, o.Hash = key, hash[:]
	o.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(o.Key))
	o.Amount = 0
	for _, i := range o.Items {
		o.Amount += i.Quantity * i.UnitAmount
	}
	if o.Key == "" || o.Amount <= 0 {
		return o, errors.New("a key and an amount are required")
	}
	return o, nil
}

func problem(w http.ResponseWriter, status int, detail string) {
	writeJSON(w, status, map[string]any{"status": status, "title": http.StatusText(status), "detail": detail})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
