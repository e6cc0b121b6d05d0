//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/client"
	"example.com/orders-api/examples/shop"
	"example.com/orders-api/internal/embeddedpg"
)

// storefront is the example shop, a client with an account and a database of its own, which
// loses no rows. Its pages promise the customers something about their money.
type storefront struct {
	*shop.Shop
	base     http.RoundTripper
	account  uuid.UUID
	database *embeddedpg.Server
	pool     *pgxpool.Pool
	log      *os.File
	url      string
	server   *http.Server
	browsers http.Transport
	stopRun  context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex
	orders map[string][]string // that the requests of a purchase create, by the purchase
}

const shopEvents = shop.EventsPath

// shopPurchase is a row of the shop, and the orders of its keys.
type shopPurchase struct {
	ID, State, OrderID string
	Amount             int64
	orders             []string
}

func startShop(ctx context.Context, s *system, base http.RoundTripper) (f *storefront, err error) {
	f = &storefront{base: base, orders: map[string][]string{}}
	if f.log, err = os.Create(filepath.Join(s.folder, "shop.log")); err != nil {
		return f, err
	}
	var apiKey string
	if f.account, apiKey, err = s.createAccount(ctx, "shop"); err != nil {
		return f, err
	}
	f.database, err = embeddedpg.Start(ctx, embeddedpg.Options{BinDir: os.Getenv("PG_BIN"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return f, err
	}
	if f.pool, err = pgxpool.New(ctx, f.database.URL("postgres")); err != nil {
		return f, err
	}
	if err := shop.Migrate(ctx, f.pool); err != nil {
		return f, err
	}
	orders, err := client.New(client.Config{
		BaseURL: "http://" + s.addresses[0], APIKey: apiKey, Timeout: 5 * time.Second,
		Backoff: 200 * time.Millisecond, MaxBackoff: time.Second, Transport: f,
	})
	if err != nil {
		return f, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return f, err
	}
	f.url = "http://" + listener.Addr().String()
	f.Shop = shop.New(shop.Config{
		Pool: f.pool, Orders: orders, Logger: slog.New(slog.NewTextHandler(f.log, nil)),
		EventSecrets: []string{eventSecret}, PublishableKey: "pk_test_fake", Patience: 3 * time.Second, Idle: time.Second,
	})
	f.server = &http.Server{Handler: f.Shop, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = f.server.Serve(listener) }()
	ctx, f.stopRun = context.WithCancel(context.WithoutCancel(ctx))
	f.running.Go(func() { f.Run(ctx) })
	return f, nil
}

func (f *storefront) close() error {
	if f.stopRun != nil {
		_ = f.server.Close()
		f.stopRun()
		f.running.Wait()
	}
	if f.pool != nil {
		f.pool.Close()
	}
	var err error
	if f.database != nil {
		err = f.database.Stop()
	}
	return errors.Join(err, f.log.Close())
}

// RoundTrip records which order a request of the shop creates (R5).
func (f *storefront) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		var order client.OrderParams
		if err := json.Unmarshal(body, &order); err != nil {
			return nil, err
		}
		f.mu.Lock()
		id := createdBy("order", f.account, client.Key(r.Header.Get("Idempotency-Key")))
		if ids := f.orders[order.Reference]; !slices.Contains(ids, id) {
			f.orders[order.Reference] = append(ids, id)
		}
		f.mu.Unlock()
	}
	return f.base.RoundTrip(r)
}

// post sends a form of a page, with the cookie of the customer. It follows no redirect.
func (f *storefront) post(ctx context.Context, customer int, path string, form url.Values) (location string, body []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		return "", nil
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: "shop_customer", Value: strconv.Itoa(customer)})
	response, err := f.browsers.RoundTrip(r)
	if err != nil {
		return "", nil
	}
	defer func() { _ = response.Body.Close() }()
	body, _ = io.ReadAll(response.Body)
	return response.Header.Get("Location"), body
}

// buy does what the page of a customer does, sometimes in two tabs with two cards, until the
// purchase has ended or the customer has left. A declined customer tries another card.
func (f *storefront) buy(ctx context.Context, customer int, provider *provider, r *rand.Rand) {
	teas := 1 + r.IntN(90)
	path, _ := f.post(ctx, customer, shop.Path+"/basket", url.Values{"tea": {strconv.Itoa(teas)}})
	form := url.Values{"email": {fmt.Sprintf("customer-%d@shop.example.com", customer)}, "amount": {strconv.Itoa(1250 * teas)}}
	cards := []string{"pm_card_visa", challengeCard, "pm_card_chargeDeclined", "pm_card_mastercard"}
	form.Set("payment_method", cards[r.IntN(len(cards))])
	decision, leaves, twoTabs := []string{"approve", "decline", ""}[r.IntN(3)], r.IntN(30), r.IntN(4) == 0
	for attempts := 0; attempts < leaves || attempts == 0; attempts++ {
		var tab sync.WaitGroup
		if twoTabs {
			tab.Go(func() {
				f.post(ctx, customer, path+"/pay", url.Values{"email": form["email"], "amount": form["amount"], "payment_method": {"pm_card_amex"}})
			})
		}
		var result struct {
			State        string
			ClientSecret string `json:"client_secret"`
		}
		_, body := f.post(ctx, customer, path+"/pay", form)
		tab.Wait()
		_ = json.Unmarshal(body, &result)
		if intent, _, asks := strings.Cut(result.ClientSecret, "_secret_"); asks && decision != "" {
			provider.decide(ctx, &client.Action{PaymentIntentID: intent, ClientSecret: result.ClientSecret}, decision)
		}
		if result.State == "paid" || result.State == "stopped" || !pause(ctx, time.Second) {
			return
		}
		form.Set("payment_method", "pm_card_visa") // ignored while the first one is being paid
	}
}

// purchases waits until no purchase is being paid, and returns all.
func (f *storefront) purchases(ctx context.Context) ([]shopPurchase, error) {
	for start := time.Now(); ; {
		rows, _ := f.pool.Query(ctx, `
SELECT id::text, state, coalesce(order_id, '') AS order_id, 1250 * (quantities->>'tea')::bigint AS amount FROM shop.purchases`)
		purchases, err := pgx.CollectRows(rows, pgx.RowToStructByName[shopPurchase])
		if err != nil {
			return nil, err
		}
		open := false
		f.mu.Lock()
		for i := range purchases {
			purchases[i].orders = f.orders[purchases[i].ID]
			open = open || purchases[i].State == "paying"
		}
		f.mu.Unlock()
		if !open || time.Since(start) > patience || !pause(ctx, time.Second) {
			return purchases, ctx.Err()
		}
	}
}

// shopPurchase compares what a page says with the ledger. A charge of a purchase that is not
// paid stays in chargesOf, too.
func (c *checker) shopPurchase(p shopPurchase) {
	add := func(format string, args ...any) {
		c.add(&exchanges{key: client.Key("of shop " + p.ID)}, p.OrderID, format, args...)
	}
	charges := c.chargesOf[p.OrderID]
	charged := func(order string) bool { return len(c.chargesOf[order]) > 0 }
	switch {
	case p.State == "paying":
		add("the payment does not end")
	case p.State == "stopped" && !slices.ContainsFunc(p.orders, c.expired):
		add("the payment has stopped without a reason")
	case p.State == "basket" && slices.ContainsFunc(p.orders, charged):
		add("the page offers another payment, but the card is charged")
	case p.State == "paid" && (len(charges) != 1 || charges[0].Amount != p.Amount):
		add("the page says that %d is paid; the charges are %v", p.Amount, charges)
	case p.State == "paid" && !slices.Contains(p.orders, p.OrderID):
		add("the page shows the order of another purchase")
	}
	if p.State == "paid" && !c.expired(p.OrderID) {
		delete(c.chargesOf, p.OrderID)
	}
}
