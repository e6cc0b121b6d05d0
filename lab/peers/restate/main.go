// Command restate serves orders as invocations of a Restate service, https://restate.dev.
//
// Its authors recommend to send an idempotency key with each invocation, so Restate executes
// it once and returns the same result to every request with the key
// (https://docs.restate.dev/services/invocation/http), and to wrap each call to another system
// in a durable step, whose result is journaled
// (https://docs.restate.dev/develop/go/durable-steps). So the API passes the client's key to
// Restate's ingress and waits for the result. Restate calls the handler, also in this process,
// and after a crash calls it again and replays its journal. A step that had no result is
// executed again, so the calls to Stripe have keys derived from the order.
//
// A server of Restate is required, such as the program in the folder server. It stores the journals itself; the
// orders are in PostgreSQL.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	restateserver "github.com/restatedev/sdk-go/server"
)

const (
	maxConnections = 20
	retention      = 72 * time.Hour // of keys, like the responses of the orders API
	waitTimeout    = 30 * time.Second

	retryInterval    = 100 * time.Millisecond // doubled for each attempt
	maxRetryInterval = 5 * time.Second
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

	listen := cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8081")
	ingressAddress := cmp.Or(os.Getenv("PEER_SERVER"), "127.0.0.1:8080")
	client := ingress.NewClient("http://"+ingressAddress,
		ingress.WithHttpClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}))
	s := &server{place: ingress.Service[order, result](client, "Orders", "Place")}
	logs := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	handlers, err := restateserver.NewRestate().WithLogger(logs, true).
		Bind(restate.Reflect(&Orders{pool: pool, stripe: newStripe()},
			restate.WithIdempotencyRetention(retention),
			restate.WithInvocationRetryPolicy(restate.WithInitialRetryInterval(retryInterval), restate.WithMaxRetryInterval(maxRetryInterval)))).
		Handler()
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("POST /v1/orders", s.createOrder)
	mux.Handle("/discover", handlers) // Restate's calls
	mux.Handle("/invoke/", handlers)
	api := &http.Server{Addr: listen, Handler: mux, Protocols: new(http.Protocols), ReadHeaderTimeout: 10 * time.Second}
	api.Protocols.SetHTTP1(true)
	api.Protocols.SetUnencryptedHTTP2(true) // Restate sends and receives in one request
	go s.register(ctx, cmp.Or(os.Getenv("PEER_SERVER_ADMIN"), adminAddress(ingressAddress)), listen)
	context.AfterFunc(ctx, func() { _ = api.Shutdown(context.WithoutCancel(ctx)) })
	if err := api.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type server struct {
	place      ingress.Requester[order, result]
	registered atomic.Bool
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	if !s.registered.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// adminAddress is where the program in the folder server puts Restate's admin API: the port
// of the ingress, on another address of the loopback interface.
func adminAddress(ingress string) string {
	_, port, _ := net.SplitHostPort(ingress)
	return net.JoinHostPort("127.0.0.2", port)
}

// register tells Restate where the service is, until Restate has read the list of handlers.
func (s *server) register(ctx context.Context, admin, listen string) {
	for ctx.Err() == nil {
		err := func() error {
			body := fmt.Sprintf(`{"uri": "http://%s"}`, listen)
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+"/deployments", strings.NewReader(body))
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode >= http.StatusMultipleChoices {
				return fmt.Errorf("status %d", response.StatusCode)
			}
			return nil
		}()
		if err == nil {
			s.registered.Store(true)
			return
		}
		slog.WarnContext(ctx, "the service is not registered yet", "error", err)
		time.Sleep(retryInterval)
	}
}

func (s *server) createOrder(w http.ResponseWriter, r *http.Request) {
	o, err := parseOrder(w, r)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
	defer cancel()
	found, err := s.place.Request(ctx, o, restate.WithIdempotencyKey(o.Key))
	switch {
	case err != nil:
		slog.WarnContext(ctx, "the order is not finished", "error", err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "send the same request again")
	case !bytes.Equal(found.Hash, o.Hash):
		problem(w, http.StatusUnprocessableEntity, "the key belongs to another request")
	default:
		respond(w, o, found)
	}
}
