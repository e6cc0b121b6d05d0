package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"example.com/orders-api/api/docs"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/operations"
	"example.com/orders-api/orders"
)

// Config configures the API. Only Trace and OnRequest are optional.
type Config struct {
	Engine        *idempotency.Engine
	Operations    *operations.Service
	Orders        *orders.Service
	Authenticator *accounts.Authenticator
	Limiter       *admission.Limiter
	Spec          []byte // openapi.yaml
	Workflows     []byte // orders.arazzo.yaml
	Logger        *slog.Logger

	Background *Background // a process that stops waits for it
	Ready      *Readiness
	Retention  time.Duration // of a finished key

	Trace     func(http.Handler) http.Handler // the outermost middleware
	OnRequest func(RequestEvent)              // called synchronously after each request
}

// handlers serve the routes below /v1.
type handlers struct {
	Config
	actions actions
	events  transfers
}

// NewRouter returns the API.
func NewRouter(config Config) chi.Router {
	r := chi.NewRouter()
	if config.Trace != nil {
		r.Use(config.Trace)
	}
	r.Use(
		middleware.ClientIPFromRemoteAddr,
		withLog(config.Logger, config.OnRequest),
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
			notAllowedBelowV1.ServeHTTP(w, r) // chi does not enter the subrouter, and 401 comes first
			return
		}
		notAllowed(w, r)
	})

	h := &handlers{Config: config, events: transfers{limit: maxEvents, setDeadline: (*http.ResponseController).SetReadDeadline}}
	plain := r.With(withoutQuery)
	plain.Method(http.MethodGet, "/healthz", handlerFunc(healthz))
	plain.Method(http.MethodGet, "/readyz", handlerFunc(h.readyz))
	plain.Method(http.MethodGet, "/problems", handlerFunc(getProblemPage))
	plain.Method(http.MethodGet, "/problems/{slug}", handlerFunc(getProblemPage))
	docs.Routes(plain, config.Spec, config.Workflows)

	r.Route("/v1", func(r chi.Router) {
		r.With(withoutQuery).Method(http.MethodPost, "/webhooks/stripe", handlerFunc(h.receiveEvent))
		r.Group(func(r chi.Router) {
			r.Use(requireAPIKey(config.Authenticator))
			r.NotFound(notFound) // set again, so that 401 comes before 404 and 405
			r.MethodNotAllowed(notAllowed)
			plain := r.With(withoutQuery) // the others check it themselves
			plain.Method(http.MethodGet, "/idempotency-keys/{key}", handlerFunc(h.getKey))
			h.orderRoutes(r, plain)
			for _, added := range config.Operations.Registrations() {
				if added.Path == "" {
					continue // of orders
				}
				path := strings.TrimPrefix(added.Path, "/v1")
				r.Method(http.MethodPost, path, h.create(func(ctx context.Context, req operations.Request) (idempotency.Result, error) {
					return config.Engine.Do(ctx, req.Request, added.Operation)
				}))
				plain.Method(http.MethodGet, path+"/{id}", h.read(get(added.Get)))
			}
		})
	})
	return r
}

// methodNotAllowed sets the Allow header. chi calls it for an unknown method on any path.
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

// allowedMethods returns the value of Allow, or "" if there is no such path.
func allowedMethods(routes chi.Routes, r *http.Request) string {
	path := r.URL.RawPath // which chi prefers
	if path == "" {
		path = r.URL.Path
	}
	if strings.TrimSuffix(path, "/") == "/v1" {
		return "" // chi's mount matches every method
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
			if method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	if len(allowed) == 0 {
		return ""
	}
	return strings.Join(append(allowed, http.MethodOptions), ", ")
}

// withOptions needs no credentials, because the contract is public. There is no CORS, because
// an API key must not be in a browser.
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

func (h *handlers) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := h.Ready.Check(r.Context()); err != nil {
		return fmt.Errorf("%w: %w", errNotReady, err)
	}
	return healthz(w, r)
}
