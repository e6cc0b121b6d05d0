package events_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/events"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/migrations/dbtest"
)

const (
	firstSecret  = "whsec_YSBzaWduaW5nIHNlY3JldCBvZiB0aGVzZSB0ZXN0cw=="
	secondSecret = "whsec_YW5vdGhlciBzaWduaW5nIHNlY3JldCBvZiB0aGVzZSB0ZXN0cw=="
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

type fixture struct {
	*testing.T
	pool    *pgxpool.Pool
	account uuid.UUID
	log     *bytes.Buffer
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{T: t, pool: dbtest.New(t), log: &bytes.Buffer{}}
	f.account = uuid.New()
	f.exec("INSERT INTO accounts (id, name) VALUES ($1, 'Test account')", f.account)
	return f
}

func (f fixture) exec(query string, arguments ...any) {
	f.Helper()
	_, err := f.pool.Exec(f.Context(), query, arguments...)
	require.NoError(f, err)
}

func (f fixture) strings(query string) []string {
	f.Helper()
	rows, err := f.pool.Query(f.Context(), query)
	require.NoError(f, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f, err)
	return found
}

func (f fixture) stage(staged ...events.ShopEvent) {
	f.Helper()
	batch := &pgx.Batch{}
	for _, e := range staged {
		events.Stager(true).StageTx(batch, f.account, e)
	}
	require.NoError(f, f.pool.SendBatch(f.Context(), batch).Close())
}

// stagePaid stages events of as many orders.
func (f fixture) stagePaid(n int) {
	f.Helper()
	for range n {
		f.stage(events.ShopEvent{Type: events.OrderPaid, OrderID: uuid.New()})
	}
}

func (f fixture) worker(url string, secrets ...string) *jobs.Worker {
	f.Helper()
	if secrets == nil {
		secrets = []string{firstSecret}
	}
	parsed, err := events.ParseSecrets(strings.Join(secrets, ","))
	require.NoError(f, err)
	transport := &http.Transport{MaxResponseHeaderBytes: 64 << 10}
	f.Cleanup(transport.CloseIdleConnections)
	logger := slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return events.NewWorker(f.pool, events.Endpoint{URL: url, Secrets: parsed, Transport: transport}, logger)
}

func (f fixture) pass(w *jobs.Worker, want jobs.Result) {
	f.Helper()
	got, err := w.RunOnce(f.Context())
	require.NoError(f, err)
	require.Equal(f, want, got)
}

// shop is an endpoint. It responds with 204 unless a test decides otherwise.
type shop struct {
	*httptest.Server
	mu       sync.Mutex
	requests []delivered
}

type delivered struct {
	header http.Header
	body   string
}

func newShop(t *testing.T, respond http.HandlerFunc) *shop {
	t.Helper()
	if respond == nil {
		respond = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	}
	s := &shop{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, delivered{r.Header, string(body)})
		s.mu.Unlock()
		respond(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) received() []delivered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]delivered(nil), s.requests...)
}
