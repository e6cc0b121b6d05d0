package orders_test

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
)

type recordingTransport struct {
	base      http.RoundTripper
	pool      *pgxpool.Pool
	checks    *pgxpool.Pool // nil: no checks
	exclusive bool          // one request at a time, so the pool must be idle during a call

	mu          sync.Mutex
	recorded    []string
	broken      []string
	interceptor interceptor
}

type interceptor func(req *http.Request, next http.RoundTripper) (*http.Response, error)

func newRecordingTransport(t *testing.T, pool *pgxpool.Pool, exclusive, checked bool) *recordingTransport {
	t.Helper()
	r := &recordingTransport{
		base:      &http.Transport{DisableKeepAlives: true},
		pool:      pool,
		exclusive: exclusive,
	}
	if checked {
		r.checks = newPool(t, pool)
	}
	return r
}

func (r *recordingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.checks != nil && r.exclusive {
		r.checkIdle(req)
	}
	if r.checks != nil && callOf(req) == confirm {
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

func (r *recordingTransport) checkIdle(req *http.Request) {
	if n := r.pool.Stat().AcquiredConns(); n != 0 {
		r.addViolation("%s with %d connections held", callName(req), n)
	}
}

func (r *recordingTransport) checkCommitted(req *http.Request) {
	intentID := path.Base(path.Dir(req.URL.Path))
	r.check(req, "its intent is not committed", "SELECT count(*) = 1 FROM orders WHERE payment_intent_id = $1", intentID)
}

func (r *recordingTransport) check(req *http.Request, otherwise, query string, arguments ...any) {
	var holds bool
	err := r.checks.QueryRow(context.WithoutCancel(req.Context()), query, arguments...).Scan(&holds)
	switch {
	case err != nil:
		r.addViolation("%s: %v", callName(req), err)
	case !holds:
		r.addViolation("%s: %s", callName(req), otherwise)
	}
}

func (r *recordingTransport) addViolation(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf(format, arguments...))
}

const (
	createIntent = "POST /v1/payment_intents"
	confirm      = "POST /v1/payment_intents/{id}/confirm"
	cancel       = "POST /v1/payment_intents/{id}/cancel"
	getIntent    = "GET /v1/payment_intents/{id}"
	listIntents  = "GET /v1/payment_intents"
	search       = "GET /v1/payment_intents/search"
	makeRefund   = "POST /v1/refunds"
	getRefund    = "GET /v1/refunds/{id}"
	listRefunds  = "GET /v1/refunds"
	listDisputes = "GET /v1/disputes"
	listEvents   = "GET /v1/events"
)

var providerID = regexp.MustCompile(`(pi|re)_\w+`)

func callOf(req *http.Request) string {
	return req.Method + " " + providerID.ReplaceAllString(req.URL.Path, "{id}")
}

var keyNumber = regexp.MustCompile(`^orders-api-[0-9a-f-]{36}(?:-confirm|-refund|-cancel)?(-[0-9]+)$`)

// callName is the short name of a call, with the number of its provider key: confirm-2.
func callName(req *http.Request) string {
	name := "get"
	switch callOf(req) {
	case createIntent:
		name = "create"
	case confirm:
		name = "confirm"
	case cancel:
		name = "cancel"
	case makeRefund:
		name = "refund"
	case listIntents, listRefunds:
		name = "list"
	case search:
		name = "search"
	case listDisputes:
		name = "disputes"
	case listEvents:
		name = "events"
	}
	if number := keyNumber.FindStringSubmatch(req.Header.Get("Idempotency-Key")); number != nil {
		name += number[1]
	}
	return name
}

// calls lists the calls since the last reset: create 200, get 503 ×3.
func (r *recordingTransport) calls() string {
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

func (r *recordingTransport) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = nil
}

func (r *recordingTransport) intercept(around interceptor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interceptor = around
}

func (r *recordingTransport) violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) errorLines() int { return b.count("level=ERROR") }

func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text)
}
