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

// wire carries the requests to the provider. It notes them, and on the way looks
// at what must hold whenever one leaves.
type wire struct {
	base  http.RoundTripper
	pool  *pgxpool.Pool // of the service
	watch *pgxpool.Pool // on the same database
	alone bool          // one request at a time: the pool must be idle meanwhile

	mu     sync.Mutex
	calls  []string
	faults []string // what did not hold
	around around
}

// around stands between us and the provider. It may do something before a
// request goes on, change what comes back, or answer itself.
type around func(req *http.Request, next http.RoundTripper) (*http.Response, error)

func newWire(t *testing.T, pool *pgxpool.Pool, alone bool) *wire {
	t.Helper()
	return &wire{
		// Without reuse net/http sends each request once.
		base:  &http.Transport{DisableKeepAlives: true},
		pool:  pool,
		watch: anotherConnection(t, pool),
		alone: alone,
	}
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.alone {
		w.checkIdle(req)
	}
	if strings.HasSuffix(req.URL.Path, "/confirm") {
		w.checkCommitted(req)
	}
	w.mu.Lock()
	around := w.around
	w.mu.Unlock()
	if around == nil {
		around = func(req *http.Request, next http.RoundTripper) (*http.Response, error) { return next.RoundTrip(req) }
	}
	resp, err := around(req, w.base)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf("%s %d", callName(req), status))
	return resp, err
}

// checkIdle looks for a connection or a transaction that is held across a
// foreign call (R6, I13).
func (w *wire) checkIdle(req *http.Request) {
	if n := w.pool.Stat().AcquiredConns(); n != 0 {
		w.fault("%s with %d connections held", callName(req), n)
	}
	w.expect(req, "a transaction is open", `
SELECT count(*) = 0
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND state LIKE 'idle in transaction%'`)
}

// checkCommitted is invariant I18: money moves only on an intent whose id is
// committed before the confirm leaves.
func (w *wire) checkCommitted(req *http.Request) {
	intentID := path.Base(path.Dir(req.URL.Path))
	w.expect(req, "its intent is not committed", "SELECT count(*) = 1 FROM orders WHERE payment_intent_id = $1", intentID)
}

func (w *wire) expect(req *http.Request, otherwise, query string, arguments ...any) {
	var holds bool
	err := w.watch.QueryRow(context.WithoutCancel(req.Context()), query, arguments...).Scan(&holds)
	switch {
	case err != nil:
		w.fault("%s: %v", callName(req), err)
	case !holds:
		w.fault("%s: %s", callName(req), otherwise)
	}
}

func (w *wire) fault(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, arguments...))
}

// keyNumber finds the number in a provider key, which the first has not.
var keyNumber = regexp.MustCompile(`^orders-api-[0-9a-f-]{36}(?:-confirm|-refund|-cancel)?(-[0-9]+)$`)

// callName is a request as the tests write it, with the number of its provider
// key from the second on: create, confirm-2, get.
func callName(req *http.Request) string {
	name := path.Base(req.URL.Path) // confirm or cancel
	switch {
	case req.Method == http.MethodGet && (name == "payment_intents" || name == "refunds"):
		name = "list"
	case req.Method == http.MethodGet:
		name = "get"
	case name == "payment_intents":
		name = "create"
	case name == "refunds":
		name = "refund"
	}
	if number := keyNumber.FindStringSubmatch(req.Header.Get("Idempotency-Key")); number != nil {
		name += number[1]
	}
	return name
}

// said lists the calls since forget, repetitions counted.
func (w *wire) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for i := 0; i < len(w.calls); {
		n := 1
		for i+n < len(w.calls) && w.calls[i+n] == w.calls[i] {
			n++
		}
		call := w.calls[i]
		if n > 1 {
			call = fmt.Sprintf("%s ×%d", call, n)
		}
		list = append(list, call)
		i += n
	}
	return strings.Join(list, ", ")
}

func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = nil
}

// put puts something between us and the provider, or takes it away again.
func (w *wire) put(around around) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.around = around
}

func (w *wire) wrong() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults
}

// logBuffer is a log that several goroutines may write to.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// alarms returns how many lines want somebody to look.
func (b *logBuffer) alarms() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), "level=ERROR")
}
