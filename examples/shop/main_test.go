package shop_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/api"
	"example.com/orders-api/client"
	"example.com/orders-api/examples/shop"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders/orderstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

// fixture is the shop, the API on the same database, and the fake Stripe.
type fixture struct {
	*testing.T
	*orderstest.Shop
	network *network // between the shop and the API
	shop    *shop.Shop
	url     string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, Shop: orderstest.New(t, orderstest.Options{}), network: &network{}}
	require.NoError(t, shop.Migrate(t.Context(), f.Pool))
	require.NoError(t, shop.Migrate(t.Context(), f.Pool), "a second start")
	router, apiKey := f.API(t, api.Config{})
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	orders, err := client.New(client.Config{BaseURL: server.URL, APIKey: apiKey, Backoff: time.Millisecond, MaxBackoff: time.Millisecond, Transport: f.network})
	require.NoError(t, err)
	t.Cleanup(orders.Close)
	f.shop = shop.New(shop.Config{
		Pool: f.Pool, Orders: orders, Logger: slog.New(slog.DiscardHandler), PublishableKey: "pk_test_shop", Patience: 5 * time.Second,
		EventSecrets: []string{eventSecret},
	})
	pages := httptest.NewServer(f.shop)
	t.Cleanup(pages.Close)
	f.url = pages.URL
	return f
}

// newPurchase returns a customer whose basket has two teas, and the path of the payment page.
func newPurchase(t *testing.T) (f *fixture, b *browser, path string) {
	t.Helper()
	f = newFixture(t)
	b = f.browser()
	return f, b, b.fill()
}

// setNetwork changes the mode of the network, and how long the shop sends a request again.
func (f *fixture) setNetwork(mode string, patience time.Duration) {
	f.network.mode.Store(mode)
	f.shop.Patience = patience
}

// network is the transport between shop and API. It can fail before or after a request, change the API
// key, or respond in place of the API.
type network struct {
	http.Transport
	mode atomic.Value
}

const (
	cut      = "before the request"
	lost     = "after the request"
	wrongKey = "with a wrong API key"
	moved    = "307 of a gateway"
	notFound = "404 of a gateway that imitates the API"
)

func response(r *http.Request, status int, contentType, location, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {contentType}, "Location": {location}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	switch mode := n.mode.Load(); mode {
	case cut:
		return nil, errors.New("the network is cut")
	case lost:
		response, err := n.Transport.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errors.New("the response is lost")
	case moved:
		if r.URL.RawQuery == "" { // otherwise the redirect was followed
			return response(r, http.StatusTemporaryRedirect, "", r.URL.String()+"?moved", ""), nil
		}
	case notFound:
		return response(r, http.StatusNotFound, "application/problem+json", "", `{"retry":"never","outcome":"none"}`), nil
	case wrongKey:
		r.Header.Set("Authorization", "Bearer wrong")
	}
	return n.Transport.RoundTrip(r)
}

// browser is a customer with cookies.
type browser struct {
	*fixture
	http *http.Client
}

func (f *fixture) browser() *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(f, err)
	return &browser{f, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// page is a response.
type page struct {
	status     int
	header     http.Header
	path, text string // of the last response, after redirects
}

// send sends a GET, or a POST if form is set. origin "" means the shop's own page.
func (b *browser) send(path string, form url.Values, origin string) page {
	b.Helper()
	response, err := b.try(path, form, origin)
	require.NoError(b, err)
	return response
}

func (b *browser) try(path string, form url.Values, origin string) (page, error) {
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		return page{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", cmp.Or(origin, b.url))
	response, err := b.http.Do(request)
	if err != nil {
		return page{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return page{response.StatusCode, response.Header, response.Request.URL.Path, string(text)}, err
}

func (b *browser) get(path string) page {
	b.Helper()
	return b.send(path, nil, "")
}

// fill puts two teas in the basket and returns the path of the payment page.
func (b *browser) fill() string {
	b.Helper()
	got := b.send("/shop/basket", url.Values{"tea": {"2"}}, "")
	require.Equal(b, http.StatusOK, got.status, got.text)
	return got.path
}

// status is the shop's response to the payment page.
type status struct {
	State        string
	Message      string
	ClientSecret string `json:"client_secret"`
}

// post sends a form to the payment page's path.
func (b *browser) post(path string, form url.Values) (s status) {
	b.Helper()
	got := b.send(path+"/pay", form, "")
	require.Equal(b, http.StatusOK, got.status, got.text)
	require.NoError(b, json.Unmarshal([]byte(got.text), &s))
	return s
}

// postAsync sends the form of another tab.
func (b *browser) postAsync(path string, form url.Values) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := b.try(path+"/pay", form, "")
		done <- err
	}()
	return done
}

func form(card string) url.Values {
	return url.Values{"email": {"ada@example.com"}, "payment_method": {card}, "amount": {"2500"}}
}

func (b *browser) pay(path, card string) status {
	b.Helper()
	return b.post(path, form(card))
}

// resume sends what the payment page sends after a reload.
func (b *browser) resume(path string) status {
	b.Helper()
	return b.post(path, url.Values{})
}

// row is a row of shop.purchases.
type row struct {
	State          string
	IdempotencyKey *client.Key
	Request        []byte
	Attempts       int
	OrderID        *string
}

func (f *fixture) row(path string) row {
	f.Helper()
	rows, err := f.Pool.Query(f.Context(), "SELECT state, idempotency_key, request, attempts, order_id FROM shop.purchases WHERE id = $1", path[strings.LastIndex(path, "/")+1:])
	require.NoError(f, err)
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[row])
	require.NoError(f, err)
	return found
}

// exec executes SQL.
func (f *fixture) exec(sql string, arguments ...any) {
	f.Helper()
	_, err := f.Pool.Exec(f.Context(), sql, arguments...)
	require.NoError(f, err)
}

// count returns the number of rows.
func (f *fixture) count(from string) (n int) {
	f.Helper()
	require.NoError(f, f.Pool.QueryRow(f.Context(), "SELECT count(*) FROM "+from).Scan(&n))
	return n
}

// loseRows deletes the rows that the API would lose in a failover to a standby without the orders.
func (f *fixture) loseRows() {
	f.Helper()
	for _, table := range []string{"staged_jobs", "audit_records", "orders", "idempotency_keys"} {
		f.exec("DELETE FROM " + table)
	}
}

// age moves the times of all purchases back.
func (f *fixture) age(by time.Duration) {
	f.Helper()
	f.exec("UPDATE shop.purchases SET requested_at = requested_at - $1::interval, attempted_at = attempted_at - $1::interval", by)
}

// runOnce runs one pass of the background loop, as if the customers had left ten minutes ago.
func (f *fixture) runOnce() {
	f.Helper()
	f.age(10 * time.Minute)
	require.NoError(f, f.shop.RunOnce(f.Context()))
}
