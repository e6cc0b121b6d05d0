package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/admission"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/reconcile"
)

// Config configures the API.
type Config struct {
	Engine        *idempotency.Engine
	Orders        *orders.Service
	Changes       *reconcile.Service
	Authenticator *accounts.Authenticator
	Limiter       *admission.Limiter
	Spec          []byte // openapi.yaml
	Logger        *slog.Logger

	Background Background // a process that stops waits for it
	Ready      *Readiness
	Retention  time.Duration // of a finished key

	OnRequest observer                    // may be nil
	Own       func(*Handlers, chi.Router) // adds the routes of own operations, may be nil
}

// observer gets the method (GET, HEAD, POST or "other"), the matched pattern or "", the status and
// duration of each request, and its outcome, which is "" without an idempotency key or event.
type observer = func(method, route string, status int, took time.Duration, outcome string)

// Handlers makes the handlers of routes.
type Handlers struct {
	Config
	actions coalescer
}

// NewRouter returns the API.
func NewRouter(config Config) chi.Router {
	problemTypes()
	r := chi.NewRouter()
	r.Use(
		withLog(config.Logger, config.OnRequest),
		withHeaders(config.Ready),
		middleware.GetHead,
	)
	authenticated := requireAPIKey(config.Authenticator)
	noRoute := noRoute(r, authenticated)
	r.NotFound(noRoute)
	r.MethodNotAllowed(noRoute)

	h := &Handlers{Config: config}
	plain := r.With(withoutQuery)
	plain.Method(http.MethodGet, "/healthz", handlerFunc(healthz))
	plain.Method(http.MethodGet, "/readyz", handlerFunc(h.readyz))
	plain.Method(http.MethodGet, "/openapi.yaml", handlerFunc(h.getContract))
	plain.Method(http.MethodGet, "/problems", handlerFunc(getProblemPage))
	plain.Method(http.MethodGet, "/problems/{slug}", handlerFunc(getProblemPage))
	plain.Method(http.MethodPost, WebhookPath, handlerFunc(h.receiveEvent))

	account := r.With(authenticated)
	account.Method(http.MethodGet, "/v1/idempotency-keys/{key}", withoutQuery(handlerFunc(h.getKey)))
	h.orderRoutes(account)
	h.refundRoutes(account)
	if config.Own != nil {
		config.Own(h, account)
	}
	return r
}

// noRoute responds to an unknown path, and to an unknown method of a path. There is no CORS, because an API
// key must not be in a browser.
func noRoute(routes chi.Routes, authenticated func(http.Handler) http.Handler) http.HandlerFunc {
	var respond http.Handler = handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		allowed := allowedMethods(routes, routePath(r))
		if allowed == "" {
			return errNoPage
		}
		w.Header().Set("Allow", allowed)
		return errMethodNotAllowed
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(routePath(r)+"/", "/v1/") {
			authenticated(respond).ServeHTTP(w, r) // 401 comes before 404 and 405
			return
		}
		respond.ServeHTTP(w, r)
	}
}

// routePath returns the path that chi matches.
func routePath(r *http.Request) string { return cmp.Or(r.URL.RawPath, r.URL.Path) }

// allowedMethods returns the value of Allow, or "" if there is no such path.
func allowedMethods(routes chi.Routes, path string) string {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	return strings.Replace(strings.Join(allowed, ", "), "GET", "GET, HEAD", 1)
}

func healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (h *Handlers) getContract(w http.ResponseWriter, _ *http.Request) error {
	write(w, http.StatusOK, "application/yaml", h.Spec)
	return nil
}

func (h *Handlers) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := h.Ready.Check(); err != nil {
		return fmt.Errorf("%w: %w", errNotReady, err)
	}
	return healthz(w, r)
}

// NewServer returns a server whose listener bounds the time to send a part of a response.
func NewServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

var errDraining = errors.New("shutting down")

// Readiness reports whether this process should get traffic. A probe costs nothing, because it
// reads the result of a background check (R25, bounded outsiders).
type Readiness struct {
	check    func() error
	draining atomic.Bool
}

// NewReadiness returns a Readiness.
func NewReadiness(check func() error) *Readiness { return &Readiness{check: check} }

// Drain makes the process not ready from now on, and responses end their connections. Otherwise
// a proxy could send a request on a connection that Shutdown closes.
func (r *Readiness) Drain() { r.draining.Store(true) }

// Check returns nil, or the reason why the process is not ready.
func (r *Readiness) Check() error {
	if r.draining.Load() {
		return errDraining
	}
	return r.check()
}
