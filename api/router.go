package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"example.com/orders-api/api/docs"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/limiter"
	"example.com/orders-api/orders"
)

// Config configures the API. Only Trace and Observer are optional.
type Config struct {
	Orders        *orders.Service
	Authenticator *accounts.Authenticator
	Limiter       *limiter.Limiter
	Spec          []byte // openapi.yaml
	Logger        *slog.Logger

	// Background holds the runs of respond-async. A process that stops waits for it.
	Background *Background

	// Retention is how long a finished key is kept, as configured for the reaper.
	Retention time.Duration

	// Trace is the outermost middleware.
	Trace func(http.Handler) http.Handler

	// Ready is the readiness check of /readyz. Its error is logged.
	Ready *Readiness

	Observer Observer
}

// NewRouter returns the API.
func NewRouter(config Config) (chi.Router, error) {
	for name, missing := range map[string]bool{
		"Orders": config.Orders == nil, "Authenticator": config.Authenticator == nil, "Limiter": config.Limiter == nil,
		"Spec": len(config.Spec) == 0, "Logger": config.Logger == nil, "Background": config.Background == nil,
		"Retention": config.Retention <= 0, "Ready": config.Ready == nil,
	} {
		if missing {
			return nil, errors.New("api: Config has no " + name)
		}
	}
	contractJSON, err := specJSON(config.Spec)
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	if config.Trace != nil {
		r.Use(config.Trace)
	}
	r.Use(
		withRequestID,
		middleware.ClientIPFromRemoteAddr,
		withLog(config.Logger, config.Observer),
		limitResponses,
		withHeaders,
		withOptions(r),
		middleware.GetHead,
	)
	notFound := handlerFunc(func(http.ResponseWriter, *http.Request) error { return errNoPage }).ServeHTTP
	notAllowed := methodNotAllowed(r)
	notAllowedBelowV1 := requireAPIKey(config.Authenticator)(notAllowed)
	r.NotFound(notFound)
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			notAllowedBelowV1.ServeHTTP(w, r) // chi does not enter the subrouter, so 401 would not come first
			return
		}
		notAllowed(w, r)
	})

	plain := r.With(withoutQuery)
	plain.Method(http.MethodGet, "/healthz", handlerFunc(healthz))
	plain.Method(http.MethodGet, "/readyz", readyz(config.Ready))
	plain.Method(http.MethodGet, "/openapi.yaml", docs.Document("application/yaml", config.Spec))
	plain.Method(http.MethodGet, "/openapi.json", docs.Document("application/json", contractJSON))
	plain.Method(http.MethodGet, "/problems/{slug}", handlerFunc(getProblemPage))
	docs.Routes(plain) // /docs, /docs/{file}

	r.Route("/v1", func(r chi.Router) {
		webhooks := webhooksAPI{config.Orders, config.Limiter, newTransfers(maxWebhookBodies, (*http.ResponseController).SetReadDeadline)}
		r.With(withoutQuery).Method(http.MethodPost, "/webhooks/stripe", handlerFunc(webhooks.stripe)) // POST /v1/webhooks/stripe

		idempotent := idempotentAPI{config.Orders, config.Background, config.Limiter, config.Retention, config.Observer}
		orders, refunds := ordersAPI{idempotent}, refundsAPI{idempotent}
		r.Group(func(r chi.Router) {
			r.Use(requireAPIKey(config.Authenticator))
			read := limitReads(config.Limiter)
			r.NotFound(notFound) // set again, so that 401 comes before 404 and 405
			r.MethodNotAllowed(notAllowed)
			plain := r.With(withoutQuery)                                                           // the others check it themselves
			r.Method(http.MethodPost, "/orders", handlerFunc(orders.create))                        // POST /v1/orders
			r.Method(http.MethodPost, "/orders/{id}/refunds", handlerFunc(refunds.create))          // POST /v1/orders/{id}/refunds
			plain.Method(http.MethodGet, "/idempotency-keys/{key}", handlerFunc(idempotent.getKey)) // GET /v1/idempotency-keys/{key}
			r.Method(http.MethodGet, "/orders", read(orders.list))                                  // GET /v1/orders
			plain.Method(http.MethodGet, "/orders/{id}", read(orders.get))                          // GET /v1/orders/{id}
			r.Method(http.MethodGet, "/orders/{id}/refunds", read(refunds.list))                    // GET /v1/orders/{id}/refunds
			plain.Method(http.MethodGet, "/orders/{id}/refunds/{refund_id}", read(refunds.get))     // GET /v1/orders/{id}/refunds/{refund_id}
			for _, registered := range config.Orders.Registrations() {
				added := addedAPI{idempotent, registered}
				path := strings.TrimPrefix(registered.Path, "/v1")
				r.Method(http.MethodPost, path, handlerFunc(added.create))
				plain.Method(http.MethodGet, path+"/{id}", read(added.get))
			}
		})
	})
	return r, nil
}

// methodNotAllowed sets the Allow header, which chi omits for a custom handler. chi also
// calls it for an unknown method on any path.
func methodNotAllowed(routes chi.Routes) http.HandlerFunc {
	return handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		allowed := allowedMethods(routes, r)
		if allowed == "" {
			return errNoPage
		}
		w.Header().Set("Allow", allowed)
		return errMethodNotAllowed
	}).ServeHTTP
}

// allowedMethods returns the value of Allow, "" without such a path.
func allowedMethods(routes chi.Routes, r *http.Request) string {
	path := r.URL.RawPath // which chi prefers
	if path == "" {
		path = r.URL.Path
	}
	if strings.TrimSuffix(path, "/") == "/v1" {
		return "" // chi's mount matches every method
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		match := method
		if method == http.MethodHead {
			match = http.MethodGet // see middleware.GetHead
		}
		if routes.Match(chi.NewRouteContext(), match, path) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return ""
	}
	return strings.Join(append(allowed, http.MethodOptions), ", ")
}

// withOptions needs no credentials, because the contract is public. There is no CORS: an
// API key must not be in a browser.
func withOptions(routes chi.Routes) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodOptions {
				allowed := allowedMethods(routes, r)
				if allowed != "" {
					w.Header().Set("Allow", allowed)
				}
				if allowed != "" || r.RequestURI == "*" {
					w.WriteHeader(http.StatusNoContent)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

func healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func readyz(ready *Readiness) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := ready.Check(r.Context()); err != nil {
			return fmt.Errorf("%w: %w", errNotReady, err)
		}
		return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}
}
