package orderstest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

// Transport records the calls to the provider, and checks that none begins too early.
type Transport struct {
	base   http.RoundTripper
	pool   *pgxpool.Pool
	checks *pgxpool.Pool // nil: no checks
	setup  Setup

	mu          sync.Mutex
	recorded    []string
	broken      []string
	interceptor Interceptor
}

// Interceptor sends a call in another way.
type Interceptor func(req *http.Request, next http.RoundTripper) (*http.Response, error)

func newTransport(t *testing.T, pool *pgxpool.Pool, setup Setup) *Transport {
	t.Helper()
	r := &Transport{base: &http.Transport{DisableKeepAlives: true}, pool: pool, setup: setup}
	if !setup.Unchecked {
		r.checks = newPool(t, pool)
	}
	return r
}

func newPool(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dbtest.URL(pool))
	require.NoError(t, err)
	config.MaxConns = 1
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	return other
}

// RoundTrip implements [http.RoundTripper].
func (r *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ofJob := r.setup.Jobs && req.URL.Query().Has("payment_intent")
	if r.checks != nil && !r.setup.Concurrent && !ofJob {
		r.checkIdle(req)
	}
	if r.checks != nil && CallOf(req) == Confirm {
		r.checkCommitted(req)
	}
	r.mu.Lock()
	intercept := r.interceptor
	r.mu.Unlock()
	if intercept == nil {
		intercept = func(req *http.Request, next http.RoundTripper) (*http.Response, error) { return next.RoundTrip(req) }
	}
	resp, err := intercept(req, r.base)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = append(r.recorded, fmt.Sprintf("%s %d", callName(req), status))
	return resp, err
}

func (r *Transport) checkIdle(req *http.Request) {
	if n := r.pool.Stat().AcquiredConns(); n != 0 {
		r.addViolation("%s with %d connections held (R6)", callName(req), n)
	}
}

func (r *Transport) checkCommitted(req *http.Request) {
	intentID := path.Base(path.Dir(req.URL.Path))
	var committed bool
	err := r.checks.QueryRow(context.WithoutCancel(req.Context()),
		"SELECT count(*) = 1 FROM orders WHERE payment_intent_id = $1", intentID).Scan(&committed)
	switch {
	case err != nil:
		r.addViolation("%s: %v", callName(req), err)
	case !committed:
		r.addViolation("%s: its intent is not committed", callName(req))
	}
}

func (r *Transport) addViolation(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf(format, arguments...))
}

// Calls to the provider.
const (
	CreateIntent = "POST /v1/payment_intents"
	Confirm      = "POST /v1/payment_intents/{id}/confirm"
	Cancel       = "POST /v1/payment_intents/{id}/cancel"
	GetIntent    = "GET /v1/payment_intents/{id}"
	ListIntents  = "GET /v1/payment_intents"
	Search       = "GET /v1/payment_intents/search"
	MakeRefund   = "POST /v1/refunds"
	ListRefunds  = "GET /v1/refunds"
	ListDisputes = "GET /v1/disputes"
	ListEvents   = "GET /v1/events"
)

var providerID = regexp.MustCompile(`(pi|re)_\w+`)

// CallOf returns the call of a request.
func CallOf(req *http.Request) string {
	return req.Method + " " + providerID.ReplaceAllString(req.URL.Path, "{id}")
}

var keyNumber = regexp.MustCompile(`^orders-api-[0-9a-f-]{36}(?:-confirm|-refund|-cancel)?(-[0-9]+)$`)

// callName is the short name of a call, with the number of its provider key: confirm-2.
func callName(req *http.Request) string {
	name := "get"
	switch CallOf(req) {
	case CreateIntent:
		name = "create"
	case Confirm:
		name = "confirm"
	case Cancel:
		name = "cancel"
	case MakeRefund:
		name = "refund"
	case ListIntents, ListRefunds:
		name = "list"
	case Search:
		name = "search"
	case ListDisputes:
		name = "disputes"
	case ListEvents:
		name = "events"
	}
	if number := keyNumber.FindStringSubmatch(req.Header.Get("Idempotency-Key")); number != nil {
		name += number[1]
	}
	return name
}

// Calls lists the calls since the last reset: create 200, get 503 ×3.
func (r *Transport) Calls() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for i := 0; i < len(r.recorded); {
		n := 1
		for i+n < len(r.recorded) && r.recorded[i+n] == r.recorded[i] {
			n++
		}
		call := r.recorded[i]
		if n > 1 {
			call = fmt.Sprintf("%s ×%d", call, n)
		}
		list = append(list, call)
		i += n
	}
	return strings.Join(list, ", ")
}

// Count counts the calls with this short name since the last reset.
func (r *Transport) Count(name string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.recorded {
		if strings.HasPrefix(call, name+" ") {
			n++
		}
	}
	return n
}

// Reset forgets the calls.
func (r *Transport) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = nil
}

// Intercept sends all calls through an interceptor, or, if it is nil, directly.
func (r *Transport) Intercept(around Interceptor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interceptor = around
}

// Violations returns the calls that began too early.
func (r *Transport) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

// Log is what the shop logs.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *Log) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Errors counts the errors.
func (b *Log) Errors() int { return b.Count("level=ERROR") }

// Count counts a text.
func (b *Log) Count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text)
}
