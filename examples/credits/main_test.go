package credits_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/examples/credits"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders/orderstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

type fixture struct {
	*testing.T
	*orderstest.Shop
	router  http.Handler
	apiKey  string
	wallets *walletService
	service *credits.Service
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, Shop: orderstest.New(t, orderstest.Options{Pool: newPool(t)}), wallets: &walletService{credits: map[string]string{}}}
	server := httptest.NewServer(f.wallets)
	t.Cleanup(server.Close)
	wallets := &credits.Wallets{URL: server.URL, Transport: server.Client().Transport, Timeout: time.Minute}
	f.service = &credits.Service{Pool: f.Pool, Wallets: wallets}
	f.Engine.Register(f.service.Operation())
	f.router, f.apiKey = f.API(t, api.Config{Spec: ordersapi.Spec, Own: f.service.Routes})
	return f
}

// send sends a POST, or a GET if the key is empty.
func (f *fixture) send(key, path, body string) *httptest.ResponseRecorder {
	method := http.MethodGet
	if key != "" {
		method = http.MethodPost
	}
	request := httptest.NewRequestWithContext(f.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+f.apiKey)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response := httptest.NewRecorder()
	f.router.ServeHTTP(response, request)
	return response
}

const (
	key     = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	request = `{ "wallet": "ann", "amount": 1200 }`
)

func (f *fixture) grant() *httptest.ResponseRecorder { return f.send(key, "/v1/credits", request) }

func (f *fixture) credit() (credit credits.Credit) {
	f.Helper()
	id := idempotency.DeriveID("credit", f.Account, key)
	got := f.send("", "/v1/credits/"+id.String(), "")
	require.Equal(f, http.StatusOK, got.Code, got.Body)
	require.NoError(f, json.Unmarshal(got.Body.Bytes(), &credit))
	return credit
}

func (f *fixture) resolve() (idempotency.Result, error) {
	return f.Resolve(f.Context(), f.Account, idempotency.KeyID(f.Account, key), audit.Operator{Actor: "ada", Reason: "test"})
}

// removeMark makes the next attempt a put again.
func (f *fixture) removeMark() {
	f.Helper()
	_, err := f.Pool.Exec(f.Context(), "UPDATE credits SET cancel_requested_by = NULL WHERE cancel_requested_by = 'ada'")
	require.NoError(f, err)
}

func (f *fixture) auditRecords() (n int) {
	f.Helper()
	require.NoError(f, f.Pool.QueryRow(f.Context(), "SELECT count(*) FROM audit_records WHERE action = 'key.resolve'").Scan(&n))
	return n
}

func requireProblem(t *testing.T, slug string, got *httptest.ResponseRecorder) (document map[string]any) {
	t.Helper()
	require.Equal(t, "application/problem+json", got.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &document))
	require.Equal(t, "/problems/"+slug, document["type"], got.Body)
	return document
}

// walletService stores a credit once per id, unless the id was cancelled first.
type walletService struct {
	mu            sync.Mutex
	credits       map[string]string // the body by path; empty if the credit was cancelled
	calls         int
	lostResponses int
	down          bool
	missing       bool         // no wallet exists
	slow          int          // how many puts get no response, and are executed later
	inFlight      []func()     // each executes a put that got no response
	onCancel      func()       // called before each cancel
	gateway       http.Handler // if set, answers instead of the service
}

// execute executes the puts that got no response, as if they had been slow on their way.
func (w *walletService) execute() {
	w.missing = false
	for _, put := range w.inFlight {
		put()
	}
	w.inFlight = nil
}

func (w *walletService) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(in.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if w.slow > 0 {
		w.slow--
		w.inFlight = append(w.inFlight, func() { w.handle(in, string(body)) })
		panic(http.ErrAbortHandler)
	}
	if w.gateway != nil {
		w.gateway.ServeHTTP(out, in)
		return
	}
	if in.Method == http.MethodDelete && w.onCancel != nil {
		w.onCancel()
	}
	status := http.StatusBadRequest
	if err == nil {
		status = w.handle(in, string(body))
	}
	if w.lostResponses > 0 && status < http.StatusInternalServerError {
		w.lostResponses--
		panic(http.ErrAbortHandler)
	}
	out.Header().Set("Content-Type", "application/json; charset=utf-8")
	out.WriteHeader(status)
	answer(out, in.URL.Path, map[int]string{
		http.StatusOK: "cancelled", http.StatusGone: "cancelled", http.StatusNotFound: "refused",
		http.StatusCreated: "granted", http.StatusConflict: "granted",
	}[status])
}

func answer(out io.Writer, address, status string) {
	fmt.Fprintf(out, `{"id":%q,"status":%q}`, path.Base(address), status)
}

func (w *walletService) handle(in *http.Request, body string) (status int) {
	credit, known := w.credits[in.URL.Path]
	switch {
	case in.Method == http.MethodDelete && credit != "":
		return http.StatusConflict
	case in.Method == http.MethodDelete:
		w.credits[in.URL.Path] = ""
		return http.StatusOK
	case w.down:
		return http.StatusInternalServerError
	case known && credit == "":
		return http.StatusGone
	case w.missing:
		return http.StatusNotFound
	default:
		w.credits[in.URL.Path] = body
		return http.StatusCreated
	}
}

func (w *walletService) expectCredits(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	granted := 0
	for _, credit := range w.credits {
		if credit != "" {
			granted++
		}
	}
	require.Equal(t, n, granted, "credits at the wallet service")
}
