package events_test

import (
	"cmp"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/events"
	"example.com/orders-api/internal/foreigntest"
	"example.com/orders-api/internal/jobs"
)

func TestDeliver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, nil)
	secret := f.set(endpoint.URL + "/events?shop=1")
	order, refund := uuid.New(), uuid.New()
	f.stage(f.account, events.Event{Type: events.RefundUpdated, OrderID: order, RefundID: refund})
	id := f.strings("SELECT id::text FROM staged_jobs")[0]

	f.pass(jobs.Result{events.Sent: 1})
	f.pass(jobs.Result{})
	require.Empty(t, f.strings("SELECT id::text FROM staged_jobs"))
	require.Equal(t, []string{"event.sent order " + order.String()}, f.strings("SELECT action || ' ' || resource_type || ' ' || resource_id FROM audit_records"))

	require.Len(t, endpoint.received(), 1)
	got := endpoint.received()[0]
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, id, got.header.Get("webhook-id"))
	event, err := got.verify(secret)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), event.Timestamp, time.Minute)
	require.JSONEq(t, `{"id":"`+id+`","type":"refund.updated","timestamp":"`+event.Timestamp.Format("2006-01-02T15:04:05.000000Z")+
		`","data":{"order_id":"`+order.String()+`","refund_id":"`+refund.String()+`"}}`, got.body)
	require.Equal(t, client.EventData{OrderID: order.String(), RefundID: refund.String()}, event.Data)
	sent, err := strconv.ParseInt(got.header.Get("webhook-timestamp"), 10, 64)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), time.Unix(sent, 0), time.Minute)
}

// What becomes of an event and of its endpoint, for what an endpoint can do. Nothing of its URL's path or
// of its responses is stored or logged.
func TestDeliver_faults(t *testing.T) {
	t.Parallel()
	const refused = "events are not sent to the address "
	for name, test := range map[string]struct {
		respond http.HandlerFunc
		url     func(t *testing.T, endpoint *shop) string // by default that of the endpoint
		timeout time.Duration                             // by default that of the program
		sent    bool
		unseen  bool // no request arrives
		gone    bool
		pause   time.Duration // at least
		error   string
	}{
		"accepts":                    {respond: status(http.StatusAccepted), sent: true},
		"accepts with a huge body":   {respond: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10<<20)) }, sent: true},
		"accepts, and never ends":    {respond: endless, timeout: 2 * time.Second, sent: true},
		"400":                        {respond: status(http.StatusBadRequest), error: "the endpoint responded with status 400"},
		"500 with a body":            {respond: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "canary", http.StatusInternalServerError) }, error: "the endpoint responded with status 500"},
		"410":                        {respond: status(http.StatusGone), gone: true, error: "the endpoint responded with status 410"},
		"503 with Retry-After":       {respond: later("7200"), pause: 2 * time.Hour, error: "the endpoint responded with status 503"},
		"503 with a far Retry-After": {respond: later("999999999"), pause: 24 * time.Hour, error: "the endpoint responded with status 503"},
		"503 with a useless one":     {respond: later("canary"), error: "the endpoint responded with status 503"},
		"does not respond":           {respond: hang, timeout: time.Second, error: "no response in 10s"},
		"closes the connection":      {respond: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, error: "the connection ended without a response of HTTP"},
		"a header of a megabyte":     {respond: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("canary", 200_000)) }, error: "the connection ended without a response of HTTP"},
		"speaks another protocol":    {url: otherProtocol, unseen: true, error: "the connection ended without a response of HTTP"},
		"redirects": {respond: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/canary", http.StatusFound)
		}, error: "the endpoint responded with status 302"},
		"is not there":              {url: func(_ *testing.T, endpoint *shop) string { endpoint.Close(); return endpoint.URL }, unseen: true, error: "connection refused"},
		"a private address":         {url: static("https://10.0.0.1"), unseen: true, error: refused + "10.0.0.1"},
		"the metadata of a cloud":   {url: static("https://169.254.169.254"), unseen: true, error: refused + "169.254.169.254"},
		"a private address in IPv6": {url: static("https://[::ffff:10.0.0.1]"), unseen: true, error: refused + "10.0.0.1"},
		"a name that leads to this host": {
			url: func(_ *testing.T, endpoint *shop) string {
				return strings.Replace(endpoint.URL, "http://127.0.0.1", "https://localhost", 1)
			},
			unseen: true, error: refused,
		},
		"plain http to another host": {url: static("http://192.0.2.1"), unseen: true, error: refused + "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			endpoint := newShop(t, test.respond)
			f.set(endpoint.URL)
			if test.url == nil {
				test.url = func(_ *testing.T, endpoint *shop) string { return endpoint.URL }
			}
			f.exec("UPDATE event_endpoints SET url = $1", test.url(t, endpoint)+"/canary?token=canary")
			f.stagePaid(f.account, 1)
			worker := f.workers(firstKey)[0]
			worker.Timeout = cmp.Or(test.timeout, worker.Timeout)
			result := f.runOnce([]*jobs.Worker{worker})
			if !test.unseen {
				require.Len(t, endpoint.received(), 1)
			} else {
				require.Empty(t, endpoint.received())
			}
			e := f.endpoint()
			left := f.strings("SELECT coalesce(last_error, '') FROM staged_jobs WHERE failed_at IS NULL")
			if test.sent {
				require.Equal(t, jobs.Result{events.Sent: 1}, result)
				require.Empty(t, left)
				require.Zero(t, e.Attempt)
				return
			}
			require.Equal(t, jobs.Result{jobs.Retried: 1}, result)
			require.Len(t, left, 1)
			require.Contains(t, left[0], test.error)
			require.Contains(t, e.LastError, test.error)
			require.Equal(t, 1, e.Attempt)
			require.NotNil(t, e.FailingSince)
			require.Equal(t, test.gone, e.DisabledAt != nil)
			var pause time.Duration
			require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT run_at - failing_since FROM event_endpoints").Scan(&pause))
			require.InDelta(t, cmp.Or(test.pause, time.Second).Seconds(), pause.Seconds(), 30)
			for _, text := range []string{left[0], e.LastError, f.log.String()} {
				require.NotContains(t, text, "canary")
			}
		})
	}
}

// A delivery ends within its limit, whatever the endpoint sends.
func TestDeliver_foreignServer(t *testing.T) {
	t.Parallel()
	for name, respond := range foreigntest.Answers(t, http.StatusOK) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.set(newShop(t, respond).URL)
			f.stagePaid(f.account, 1)
			worker := f.workers(firstKey)[0]
			worker.Timeout = time.Second
			outcome := jobs.Retried
			if name == "300 MB" || name == "a body without an end" {
				outcome = events.Sent // the status decides
			}
			start := time.Now()
			require.Equal(t, jobs.Result{outcome: 1}, f.runOnce([]*jobs.Worker{worker}))
			require.Less(t, time.Since(start), foreigntest.Held)
		})
	}
}

func static(url string) func(*testing.T, *shop) string {
	return func(*testing.T, *shop) string { return url }
}

func later(value string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", value)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func endless(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func otherProtocol(t *testing.T, _ *shop) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("SSH-2.0-canary\r\n"))
			_ = conn.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}

// While an endpoint fails, each pause ends with one request. Then everything is delivered.
func TestDeliver_probe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, status(http.StatusInternalServerError))
	f.set(endpoint.URL)
	f.stagePaid(f.account, 25)
	healthy, probe := f.workers(firstKey)[:1], f.workers(firstKey)[1:]

	require.Equal(t, jobs.Result{jobs.Retried: 20}, f.runOnce(healthy))
	require.Equal(t, 1, f.endpoint().Attempt, "failures of the same moment count once")
	for attempt := 2; attempt <= 4; attempt++ {
		f.exec("UPDATE event_endpoints SET run_at = now() + interval '1 hour'")
		f.exec("UPDATE staged_jobs SET run_at = now()")
		require.Empty(t, f.runOnce(append(healthy, probe...)), "the pause belongs to the endpoint")
		f.makeDue()
		require.Empty(t, f.runOnce(healthy))
		require.Equal(t, jobs.Result{jobs.Retried: 1}, f.runOnce(probe))
		require.Equal(t, attempt, f.endpoint().Attempt)
	}
	require.Len(t, endpoint.received(), 23)

	endpoint.change(nil)
	f.makeDue()
	require.Equal(t, jobs.Result{events.Sent: 1}, f.runOnce(probe))
	e := f.endpoint()
	require.Equal(t, []any{0, (*time.Time)(nil), ""}, []any{e.Attempt, e.FailingSince, e.LastError})
	require.Equal(t, jobs.Result{events.Sent: 24}, f.runOnce(healthy))
}

// The first attempt did not end in the database, so the next one finds an endpoint that has never failed.
func TestDeliver_firstFailureNotRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.set(newShop(t, status(http.StatusInternalServerError)).URL)
	f.stagePaid(f.account, 2)
	f.exec("UPDATE staged_jobs SET attempt = 1")
	require.Equal(t, jobs.Result{jobs.Retried: 2}, f.runOnce(f.workers(firstKey)[:1]))
	require.Equal(t, 1, f.endpoint().Attempt)
}

// An event that the shop always rejects delays no other.
func TestDeliver_poison(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	poison := uuid.New()
	endpoint := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), poison.String()) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	f.set(endpoint.URL)
	f.stage(f.account, events.Event{Type: events.OrderPaid, OrderID: poison})
	f.stagePaid(f.account, 5)
	healthy, probe := f.workers(firstKey)[:1], f.workers(firstKey)[1:]
	require.Equal(t, jobs.Result{events.Sent: 5, jobs.Retried: 1}, f.runOnce(healthy))

	f.makeDue()
	f.stagePaid(f.account, 1)
	f.exec("UPDATE event_endpoints SET attempt = 1") // as after a pass with the poisoned event alone
	require.Equal(t, jobs.Result{events.Sent: 1}, f.runOnce(probe), "the probe is the latest event")
	for range 3 {
		f.makeDue()
		f.stagePaid(f.account, 2)
		require.Equal(t, jobs.Result{events.Sent: 2, jobs.Retried: 1}, f.runOnce(healthy))
		require.Zero(t, f.endpoint().Attempt, "the endpoint works")
	}
	f.exec("UPDATE staged_jobs SET attempt = $1, run_at = now()", jobs.MaxAttempts-1)
	require.Equal(t, jobs.Result{jobs.Failed: 1}, f.runOnce(healthy))
	failed, err := jobs.ListFailed(t.Context(), f.pool, poison.String(), 10)
	require.NoError(t, err)
	require.Len(t, failed, 1)
}

// The worker dies after the shop has accepted an event, so the shop gets it again under the same id.
func TestDeliver_killedAfterAccept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pool, err := pgxpool.NewWithConfig(t.Context(), f.pool.Config())
	require.NoError(t, err)
	endpoint := newShop(t, func(http.ResponseWriter, *http.Request) { pool.Close() })
	f.set(endpoint.URL)
	f.stagePaid(f.account, 1)
	result, err := events.NewWorkers(pool, events.Keys{firstKey}, slog.New(slog.DiscardHandler))[0].RunOnce(t.Context())
	require.ErrorContains(t, err, "closed pool")
	require.Equal(t, jobs.Result{jobs.Lost: 1}, result)

	endpoint.change(nil)
	f.pass(jobs.Result{}) // still leased
	f.makeDue()
	f.pass(jobs.Result{events.Sent: 1})
	got := endpoint.received()
	require.Len(t, got, 2)
	require.Equal(t, got[0].body, got[1].body)
	require.Equal(t, got[0].header.Get("webhook-id"), got[1].header.Get("webhook-id"))
}

// An endpoint that fails for three days is disabled. Its events are kept until it is set again.
func TestDeliver_threeDays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, status(http.StatusInternalServerError))
	secret := f.set(endpoint.URL)
	f.stagePaid(f.account, 2)
	healthy, probe := f.workers(firstKey)[:1], f.workers(firstKey)[1:]
	require.Equal(t, jobs.Result{jobs.Retried: 2}, f.runOnce(healthy))
	for _, since := range []time.Duration{71 * time.Hour, 73 * time.Hour} {
		require.Nil(t, f.endpoint().DisabledAt)
		f.makeDue()
		f.exec("UPDATE event_endpoints SET failing_since = now() - $1::interval", since)
		require.Equal(t, jobs.Result{jobs.Retried: 1}, f.runOnce(probe))
	}
	require.NotNil(t, f.endpoint().DisabledAt)
	require.Equal(t, 1, strings.Count(f.log.String(), `"level":"ERROR","msg":"event endpoint disabled"`))

	f.stagePaid(f.account, 1)
	f.makeDue()
	f.pass(jobs.Result{})
	endpoint.change(nil)
	require.Equal(t, secret, f.set(endpoint.URL), "the shop keeps its secret")
	f.pass(jobs.Result{events.Sent: 3})
}

// The job of an event that is removed with its endpoint while it is sent has no outcome.
func TestRemove_whileSending(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	endpoint := newShop(t, func(http.ResponseWriter, *http.Request) {
		require.NoError(t, events.Remove(t.Context(), f.pool, f.account))
	})
	f.set(endpoint.URL)
	f.stagePaid(f.account, 1)
	f.pass(jobs.Result{jobs.Lost: 1})
	require.ErrorIs(t, events.Remove(t.Context(), f.pool, f.account), events.ErrNoEndpoint)
}

// The failure of a former URL, which arrives late, does not disable the new one.
func TestSet_whileSending(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := newShop(t, nil)
	endpoint := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		f.set(other.URL)
		w.WriteHeader(http.StatusGone)
	})
	f.set(endpoint.URL)
	f.stagePaid(f.account, 1)
	f.pass(jobs.Result{jobs.Retried: 1})
	require.Nil(t, f.endpoint().DisabledAt)
	f.makeDue()
	f.pass(jobs.Result{events.Sent: 1})
	require.Len(t, other.received(), 1)
}
