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
// A server of Restate is required, such as restateserver beside this folder. It stores the
// journals itself; the orders are in PostgreSQL.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	restateserver "github.com/restatedev/sdk-go/server"

	"example.com/orders-api/lab/peers/programs/shop"
)

const (
	retention = 72 * time.Hour // of keys, like the responses of the orders API

	retryInterval    = 100 * time.Millisecond // doubled for each attempt
	maxRetryInterval = 5 * time.Second
)

func main() { shop.Main(run) }

func run(ctx context.Context, pool *pgxpool.Pool) error {
	ingressAddress := cmp.Or(os.Getenv("PEER_SERVER"), "127.0.0.1:8080")
	client := ingress.NewClient("http://"+ingressAddress,
		ingress.WithHttpClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}))
	s := &server{place: ingress.Service[shop.Order, shop.Result](client, "Orders", "Place")}
	handlers, err := restateserver.NewRestate().WithLogger(shop.Logger().Handler(), true).
		Bind(restate.Reflect(&Orders{pool: pool, stripe: shop.NewProvider(0)},
			restate.WithIdempotencyRetention(retention),
			restate.WithInvocationRetryPolicy(restate.WithInitialRetryInterval(retryInterval), restate.WithMaxRetryInterval(maxRetryInterval)))).
		Handler()
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("POST /v1/orders", shop.Handler(s.createOrder))
	mux.Handle("/discover", handlers) // Restate's calls
	mux.Handle("/invoke/", handlers)
	api := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	api.Protocols.SetHTTP1(true)
	api.Protocols.SetUnencryptedHTTP2(true) // Restate sends and receives in one request
	go s.register(ctx, cmp.Or(os.Getenv("PEER_SERVER_ADMIN"), adminAddress(ingressAddress)), shop.Address())
	return shop.Listen(ctx, api)
}

type server struct {
	place      ingress.Requester[shop.Order, shop.Result]
	registered atomic.Bool
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	if !s.registered.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// adminAddress is where restateserver puts Restate's admin API: the port
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

func (s *server) createOrder(ctx context.Context, o shop.Order) (shop.Result, error) {
	return s.place.Request(ctx, o, restate.WithIdempotencyKey(o.Key))
}

// Orders is the service. Restate registers its exported methods as handlers.
type Orders struct {
	pool   *pgxpool.Pool
	stripe shop.Provider
}

// Place creates an order and charges it. A step that fails is repeated, and a step may be
// executed again if its process dies, so each finds its result or makes the same one again.
func (s *Orders) Place(ctx restate.Context, o shop.Order) (shop.Result, error) {
	// An order may exist, because Restate forgets a key after its retention.
	r, err := restate.Run(ctx, func(ctx restate.RunContext) (shop.Result, error) {
		return shop.Insert(ctx, s.pool, o)
	}, restate.WithName("insert-order"))
	if err != nil || r.Status != shop.StatusPending {
		return r, err
	}
	intentID, err := restate.Run(ctx, func(ctx restate.RunContext) (string, error) {
		return s.stripe.Create(ctx, o)
	}, restate.WithName("create-intent"))
	if err != nil {
		return r, err
	}
	// The intent's id is in the journal by now.
	return restate.Run(ctx, func(ctx restate.RunContext) (shop.Result, error) {
		r, err := s.stripe.Confirm(ctx, o, intentID)
		if err != nil {
			return r, err
		}
		return r, shop.Finish(ctx, s.pool, o.ID, r)
	}, restate.WithName("charge"))
}
