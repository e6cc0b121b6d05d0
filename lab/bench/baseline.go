package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/paymentintent"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/postgres"
	"example.com/orders-api/lab/measure"
)

// baseline is a minimal program with the round trips and provider calls of an order. It
// uses the same libraries, but does not validate, replay or recover. Its CPU time per
// order is therefore a lower bound.
type baseline struct {
	pool     *pgxpool.Pool
	provider paymentintent.Client
	trips    [][]string // of floor.sql, by round trip
	orders   atomic.Int64
	first    int64
}

const baselineCommand = "baseline"

func serveBaseline(ctx context.Context, getenv func(string) string) error {
	debug.SetGCPercent(400) // as orders serve does
	config, err := pgxpool.ParseConfig(getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	config.MaxConns = 10
	postgres.Configure(config)
	b := &baseline{first: time.Now().UnixNano()}
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer b.pool.Close()
	for _, trip := range strings.Split(string(floorSQL), "\\startpipeline\n")[1:] {
		trip, _, _ = strings.Cut(trip, "\\endpipeline")
		var statements []string
		for statement := range strings.SplitSeq(strings.TrimSpace(trip), ";\n") {
			statements = append(statements, strings.ReplaceAll(strings.TrimSuffix(statement, ";"), ":n", "$1::text"))
		}
		b.trips = append(b.trips, statements)
	}
	b.provider = paymentintent.Client{Key: getenv("STRIPE_SECRET_KEY"), B: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String(getenv("STRIPE_API_BASE")),
		HTTPClient:        &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}},
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/orders", func(w http.ResponseWriter, r *http.Request) {
		if err := b.order(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{Addr: getenv("LISTEN_ADDR"), Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (b *baseline) order(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var order client.OrderParams
	if err := json.Unmarshal(body, &order); err != nil {
		return err
	}
	n := fmt.Sprint(b.first + b.orders.Add(1))
	if err := errors.Join(b.trip(ctx, 0, n), b.trip(ctx, 1, n)); err != nil {
		return err
	}
	intent, err := b.provider.New(&stripe.PaymentIntentParams{
		Params:        stripe.Params{Context: ctx, IdempotencyKey: stripe.String("base-" + n)},
		Amount:        stripe.Int64(3400),
		Currency:      stripe.String(order.Currency),
		PaymentMethod: stripe.String(order.PaymentMethod),
		Metadata:      map[string]string{"order_id": n, "account_id": floorAccount},
		AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{
			Enabled: stripe.Bool(true), AllowRedirects: stripe.String("never"),
		},
	})
	if err != nil {
		return err
	}
	if err := b.trip(ctx, 2, n); err != nil {
		return err
	}
	_, err = b.provider.Confirm(intent.ID, &stripe.PaymentIntentConfirmParams{
		Params:     stripe.Params{Context: ctx, IdempotencyKey: stripe.String("base-" + n + "-confirm")},
		OffSession: stripe.Bool(true),
	})
	if err != nil {
		return err
	}
	if err := b.trip(ctx, 3, n); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/v1/orders/"+n)
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(order)
}

func (b *baseline) trip(ctx context.Context, i int, n string) error {
	batch := &pgx.Batch{}
	for _, statement := range b.trips[i] {
		if strings.Contains(statement, "$1") {
			batch.Queue(statement, n)
		} else {
			batch.Queue(statement)
		}
	}
	return b.pool.SendBatch(ctx, batch).Close()
}

// least compares the API's CPU time per order with that of the baseline program. Both run
// at the same time, and each gets every second order.
func (b *bench) least(ctx context.Context) (err error) {
	s, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := s.pool.Exec(ctx, "INSERT INTO accounts (id, name) VALUES ($1, 'baseline')", floorAccount); err != nil {
		return err
	}
	if err := s.startServer(ctx, s.program("bench", baselineCommand), s.database); err != nil {
		return err
	}
	const clients = 16
	measure.Closed(ctx, clients, b.window/2, s.createOrders(s.clients, "warm"))
	var rounds []window
	for round := range b.rounds {
		apiBefore, baselineBefore := s.cpu(0), s.cpu(1)
		report := measure.Closed(ctx, clients, b.window, s.createOrders(s.clients, fmt.Sprintf("least-%d", round)))
		if err := allCreated(report); err != nil {
			return err
		}
		each := float64(len(report.Requests)) / 2
		rounds = append(rounds, window{
			Scenario: "least", Clients: clients, Round: round + 1, Orders: report.Rate(),
			API: (s.cpu(0) - apiBefore) / each, Least: (s.cpu(1) - baselineBefore) / each,
		})
	}
	b.windows = append(b.windows, rounds...)
	const ms = 1000
	fmt.Fprintf(b.out, "\nCPU of an order, %d clients: %.2f ms in the API; %.2f ms in the baseline program with the same round trips and calls\n",
		clients, ms*measure.Median(rounds, func(w window) float64 { return w.API }), ms*measure.Median(rounds, func(w window) float64 { return w.Least }))
	return nil
}

// compare measures this build and that of -against in alternation, on one PostgreSQL.
func (b *bench) compare(ctx context.Context) (err error) {
	if b.against == "" {
		return nil
	}
	current, err := b.startSystem(ctx, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, current.stop()) }()
	other, err := b.startSystemFrom(ctx, b.against, 0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.stop()) }()

	fmt.Fprintf(b.out, "\nin alternation with %s: medians of %d rounds of %s\n", b.against, b.rounds, b.window)
	fmt.Fprintf(b.out, "%8s %10s %10s %7s %9s %9s %7s %9s %9s %7s\n",
		"clients", "orders/s", "against", "ratio", "api ms", "against", "ratio", "replays/s", "against", "ratio")
	for _, clients := range b.clients {
		for _, s := range []*system{current, other} {
			measure.Closed(ctx, clients, b.window/2, s.createOrders(s.clients, fmt.Sprintf("warm-%d", clients)))
		}
		var a, z []window
		for round := range b.rounds {
			currentWindow := window{Scenario: "ours", Clients: clients, Round: round + 1}
			otherWindow := window{Scenario: "against", Clients: clients, Round: round + 1}
			measure := []func() error{
				func() error { return current.measure(ctx, current.clients, &currentWindow) },
				func() error { return other.measure(ctx, other.clients, &otherWindow) },
			}
			if round%2 == 1 { // neither build is always first
				measure[0], measure[1] = measure[1], measure[0]
			}
			if err := errors.Join(measure[0](), measure[1]()); err != nil {
				return err
			}
			a, z = append(a, currentWindow), append(z, otherWindow)
		}
		b.windows = append(append(b.windows, a...), z...)
		ratio := func(get func(window) float64) float64 {
			ratios := make([]window, len(a))
			for i := range a {
				ratios[i].Orders = get(a[i]) / get(z[i])
			}
			return measure.Median(ratios, func(w window) float64 { return w.Orders })
		}
		rate := func(w window) float64 { return w.Orders }
		cpu := func(w window) float64 { return w.API * 1000 }
		replays := func(w window) float64 { return w.Replays }
		fmt.Fprintf(b.out, "%8d %10.0f %10.0f %7.2f %9.2f %9.2f %7.2f %9.0f %9.0f %7.2f\n", clients,
			measure.Median(a, rate), measure.Median(z, rate), ratio(rate), measure.Median(a, cpu), measure.Median(z, cpu), ratio(cpu),
			measure.Median(a, replays), measure.Median(z, replays), ratio(replays))
	}
	return errors.Join(current.audit(ctx), other.audit(ctx))
}
