package labels_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/api"
	"example.com/orders-api/examples/labels"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders/orderstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

// fixture is a shop with a paid order. Its methods are about the label of one key.
type fixture struct {
	*testing.T
	*orderstest.Shop
	wire    *idempotencytest.Wire
	router  http.Handler
	apiKey  string
	carrier *carrier
	order   string // its path
	key     idempotency.Key
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, wire: &idempotencytest.Wire{}, carrier: &carrier{}, key: "the-key-of-a-label"}
	f.Shop = orderstest.New(t, orderstest.Options{Pool: newPool(t, f.wire.Configure)})
	server := httptest.NewServer(f.carrier)
	t.Cleanup(server.Close)
	service := &labels.Service{Pool: f.Pool, Carrier: &labels.Carrier{
		URL: server.URL, Transport: server.Client().Transport, Timeout: time.Minute,
	}}
	f.Engine.Register(service.Operation())
	f.router, f.apiKey = f.API(t, api.Config{Spec: ordersapi.Spec, Own: service.Routes})
	created := f.createOrder(orderstest.Visa)
	require.Equal(t, http.StatusCreated, created.Code, created.Body)
	f.order = created.Header().Get("Location")
	return f
}

// send sends a POST, or a GET if the key is empty.
func (f *fixture) send(key idempotency.Key, path, body string) *httptest.ResponseRecorder {
	method := http.MethodGet
	if key != "" {
		method = http.MethodPost
	}
	request := httptest.NewRequestWithContext(f.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+f.apiKey)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", string(key))
	response := httptest.NewRecorder()
	f.router.ServeHTTP(response, request)
	return response
}

func (f *fixture) createOrder(card string) *httptest.ResponseRecorder {
	return f.send(idempotency.Key("order-with-"+card), "/v1/orders", `{"email":"ada@example.com","currency":"usd",
		"payment_method":"`+card+`","items":[{"sku":"TEA","quantity":1,"unit_amount":500}]}`)
}

const request = `{ "address": "Ann Lee, 1 Main Street, Springfield", "grams": 450 }`

func (f *fixture) buy() *httptest.ResponseRecorder { return f.send(f.key, f.order+"/labels", request) }

// requireUnknown requires that a run ends without a final response.
func (f *fixture) requireUnknown() {
	f.Helper()
	requireProblem(f.T, "payment-outcome-unknown", f.buy())
	require.Equal(f, "pending", f.label().Status)
}

// requireBought requires that a run, or an earlier one, has bought the label, and that the carrier has sold one.
func (f *fixture) requireBought() {
	f.Helper()
	first := f.buy()
	require.Equal(f, http.StatusCreated, first.Code, first.Body)
	again := f.buy()
	require.Equal(f, "true", again.Header().Get("Idempotent-Replayed"))
	require.Equal(f, first.Body, again.Body)
	require.Equal(f, f.order+"/labels/"+f.labelID().String(), first.Header().Get("Location"))
	require.Equal(f, "bought", f.label().Status)
	require.Equal(f, []string{f.labelID().String()}, f.carrier.sold(), "one label is bought, of this key")
	require.Equal(f, trackingNumber, *f.label().TrackingNumber)
	var recorded bool // so that an operator finds what a leaked API key has bought
	require.NoError(f, f.Pool.QueryRow(f.Context(), "SELECT bool_and(data ? 'api_key') FROM audit_records WHERE action = 'label.created' AND resource_id = $1",
		f.labelID().String()).Scan(&recorded))
	require.True(f, recorded)
}

func (f *fixture) labelID() uuid.UUID { return idempotency.DeriveID("label", f.Account, f.key) }

func (f *fixture) label() (label labels.Label) {
	f.Helper()
	got := f.send("", f.order+"/labels/"+f.labelID().String(), "")
	require.Equal(f, http.StatusOK, got.Code, got.Body)
	require.NoError(f, json.Unmarshal(got.Body.Bytes(), &label))
	return label
}

func (f *fixture) resolve() (idempotency.Result, error) {
	return f.Resolve(f.Context(), f.Account, idempotency.KeyID(f.Account, f.key), orderstest.Operator)
}

func (f *fixture) exec(query string, arguments ...any) {
	f.Helper()
	_, err := f.Pool.Exec(f.Context(), query, arguments...)
	require.NoError(f, err)
}

// passTime passes two hours for a key whose process died, so that its lease is over.
func (f *fixture) passTime() {
	f.Helper()
	f.exec("UPDATE labels SET sent_at = sent_at - interval '2 hours'")
	f.exec(`
UPDATE idempotency_keys
   SET locked_at  = now() - interval '2 hours',
       updated_at = updated_at - interval '2 hours'
 WHERE id = $1`, idempotency.KeyID(f.Account, f.key))
}

func requireProblem(t *testing.T, slug string, got *httptest.ResponseRecorder) (document map[string]any) {
	t.Helper()
	require.Equal(t, "application/problem+json", got.Header().Get("Content-Type"), got.Body)
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &document))
	require.Equal(t, "/problems/"+slug, document["type"], got.Body)
	return document
}

const trackingNumber = "SX100017"

// carrier sells a label for each POST that it executes.
type carrier struct {
	mu      sync.Mutex
	labels  []string            // their references
	hidden  bool                // lookups do not find a label yet
	refuses bool                // parcels
	next    map[string]answerer // answer the next request with a method, instead of the carrier
}

// answerer answers a request. execute executes it, also later, and writes the answer.
type answerer func(out http.ResponseWriter, execute func(http.ResponseWriter))

func loseRequest(http.ResponseWriter, func(http.ResponseWriter)) { panic(http.ErrAbortHandler) }

func loseResponse(_ http.ResponseWriter, execute func(http.ResponseWriter)) {
	execute(httptest.NewRecorder())
	panic(http.ErrAbortHandler)
}

func (c *carrier) set(method string, answer answerer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = map[string]answerer{method: answer}
}

func (c *carrier) sold() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.labels
}

func (c *carrier) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	reference := path.Base(in.URL.Path)
	if in.Method == http.MethodPost {
		var sent struct{ Reference, Address string }
		if err := json.NewDecoder(in.Body).Decode(&sent); err != nil || !strings.HasPrefix(sent.Address, "Ann Lee") {
			http.Error(out, "bad request", http.StatusBadRequest)
			return
		}
		reference = sent.Reference
	}
	c.mu.Lock()
	answer := c.next[in.Method]
	delete(c.next, in.Method)
	c.mu.Unlock()
	execute := func(out http.ResponseWriter) { c.execute(out, in.Method, reference) }
	if answer != nil {
		answer(out, execute)
		return
	}
	execute(out)
}

func (c *carrier) execute(out http.ResponseWriter, method, reference string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bought := false
	for _, label := range c.labels {
		bought = bought || label == reference
	}
	switch {
	case method == http.MethodPost && c.refuses:
		write(out, http.StatusUnprocessableEntity, reference, "refused")
	case method == http.MethodPost:
		c.labels = append(c.labels, reference)
		write(out, http.StatusCreated, reference, "bought")
	case bought && !c.hidden:
		write(out, http.StatusOK, reference, "bought")
	default:
		write(out, http.StatusNotFound, reference, "none")
	}
}

func write(out http.ResponseWriter, code int, reference, status string) {
	number := ""
	if status == "bought" {
		number = trackingNumber
	}
	out.Header().Set("Content-Type", "application/json; charset=utf-8")
	out.WriteHeader(code)
	fmt.Fprintf(out, `{"reference":%q,"status":%q,"tracking_number":%q,"more":{}}`, reference, status, number)
}
