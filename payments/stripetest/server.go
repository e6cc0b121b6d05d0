package stripetest

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Options configures a [Server]. All fields are optional.
type Options struct {
	// Clock returns the time; nil means time.Now. Advance adds to it.
	Clock func() time.Time

	// SearchDelay is how long a search does not find a change. 0 means Stripe's minute, less
	// than 0 none.
	SearchDelay time.Duration

	// EventDelay is how long the list of events lacks a new one.
	EventDelay time.Duration
}

// Server is the fake. It is safe for concurrent use.
type Server struct {
	options   Options
	mux       *http.ServeMux
	endpoints map[string]endpoint

	closing   chan struct{}
	closeOnce sync.Once

	// mu protects the fields below. It is not held during a wait or a write.
	mu         sync.Mutex
	ahead      time.Duration
	keys       map[string]*savedKey
	intents    table[*intent]
	charges    table[*Charge]
	refunds    table[*Refund]
	disputes   table[*Dispute]
	events     []*Event               // oldest first
	searchable map[[2]string][]string // ids of intents by name and value of their metadata
	methods    table[*paymentMethod]
	rules      []*Injection
	requests   []*Request
	file       string // of Persist
	failed     error  // of the last write to file
}

// New returns a server without objects.
func New(opts Options) *Server {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	opts.SearchDelay = cmp.Or(opts.SearchDelay, time.Minute)
	s := &Server{
		options:    opts,
		mux:        http.NewServeMux(),
		closing:    make(chan struct{}),
		keys:       make(map[string]*savedKey),
		searchable: make(map[[2]string][]string),
	}
	s.endpoints = map[string]endpoint{
		"POST /v1/payment_intents":              s.createIntent,
		"GET /v1/payment_intents":               s.listIntents,
		searchIntents:                           s.searchIntents,
		"GET /v1/payment_intents/{id}":          s.getIntent,
		"POST /v1/payment_intents/{id}":         s.updateIntent,
		"POST /v1/payment_intents/{id}/confirm": s.confirmIntent,
		"POST /v1/payment_intents/{id}/cancel":  s.cancelIntent,
		makeRefund:                              s.createRefund,
		"GET /v1/refunds":                       s.listRefunds,
		"GET /v1/refunds/{id}":                  s.getRefund,
		"GET /v1/disputes":                      s.listDisputes,
		"POST /v1/disputes/{id}":                s.respondToDispute,
		"POST /v1/disputes/{id}/close":          s.acceptDispute,
		"GET /v1/events":                        s.listEvents,
		"GET /v1/account":                       getAccount,
	}
	for pattern, prepare := range s.endpoints {
		s.mux.HandleFunc(pattern, s.handle(pattern, prepare))
	}
	s.mux.HandleFunc("/", s.handle("", unrecognized))
	s.mux.HandleFunc("GET /{$}", s.page)
	s.mux.HandleFunc("GET /v3/{$}", serveStripeJS)
	s.mux.HandleFunc("POST /customer/{id}/approve", s.actAsCustomer(true))
	s.mux.HandleFunc("POST /customer/{id}/decline", s.actAsCustomer(false))
	return s
}

// ServeHTTP serves Stripe's API, an overview at /, a fake of Stripe.js at /v3/, and /customer.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends delayed requests. Call it before the HTTP server is stopped.
func (s *Server) Close() { s.closeOnce.Do(func() { close(s.closing) }) }

// Advance moves the server's clock forward.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

func (s *Server) now() time.Time { return s.options.Clock().Add(s.ahead) }

// An endpoint validates a request and returns its effect. An invalid request does not use its
// key, but an error of the effect is stored, as at Stripe.
type endpoint func(c *call) (run effect, invalid *apiError)

type effect func() (object any, refused *apiError)

func getAccount(*call) (effect, *apiError) {
	return func() (any, *apiError) {
		return map[string]any{"id": "acct_fake", "object": "account", "country": "US", "charges_enabled": true}, nil
	}, nil
}

func unrecognized(c *call) (effect, *apiError) {
	return nil, invalidRequest(http.StatusNotFound, "", "", fmt.Sprintf(
		"Unrecognized request URL (%s: %s). The fake serves a part of Stripe's API only.",
		c.request.Method, c.request.URL.Path))
}
