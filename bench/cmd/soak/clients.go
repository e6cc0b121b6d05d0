//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// purchase is one order and its refunds. Seed and number determine it.
type purchase struct {
	exchanges
	email      string
	method     string
	amount     int64
	want       int  // status of the final response
	expires    bool // is reaped before its last request
	refunds    []*refund
	atLeastOne bool // of the refunds must succeed
	concurrent bool // refunds are requested at the same time
	body       []byte
}

type refund struct {
	exchanges
	amount int64 // 0: the rest
	want   int   // 0: 201, or 422 because of a concurrent refund
}

// method is a payment method with the status that the fake Stripe returns for it.
type method struct {
	name   string
	status int
	weight int
}

func methods() []method {
	return []method{
		{"pm_card_visa", http.StatusCreated, 50},
		{"pm_card_mastercard", http.StatusCreated, 15},
		{stripetest.ProcessingCard, http.StatusCreated, 10}, // the provider charges it later
		{"pm_card_pendingRefund", http.StatusCreated, 5},
		{"pm_card_chargeDeclined", http.StatusPaymentRequired, 10},
		{"pm_card_chargeDeclinedInsufficientFunds", http.StatusPaymentRequired, 5},
		{"pm_unknown", http.StatusUnprocessableEntity, 5},
	}
}

func newPurchase(seed uint64, number, accounts int) (*purchase, error) {
	r := random(seed, customerStream+uint64(number))
	account := number % accounts
	p := &purchase{
		// The same key in different accounts names different orders (R20).
		exchanges: exchanges{account: account, key: client.Key(fmt.Sprintf("soak-%d-order-%08d", seed, number/accounts))},
		email:     fmt.Sprintf("buyer-%d@soak.example.com", number),
		amount:    100 + r.Int64N(100_000),
	}
	choice := r.IntN(100)
	for _, m := range methods() {
		if choice -= m.weight; choice < 0 {
			p.method, p.want = m.name, m.status
			break
		}
	}
	var err error
	p.body, err = json.Marshal(client.OrderParams{
		Email: p.email, Currency: "usd", PaymentMethod: p.method,
		Items: []client.Item{{SKU: fmt.Sprintf("sku-%d", number), Quantity: 1, UnitAmount: p.amount}},
	})
	if p.expires = r.IntN(50) == 0; !p.expires {
		p.planRefunds(r)
	}
	return p, err
}

// planRefunds chooses refunds: in part, in full, too much, or two concurrent ones of
// which only one is possible.
func (p *purchase) planRefunds(r *rand.Rand) {
	add := func(amount int64, want int) {
		p.refunds = append(p.refunds, &refund{
			exchanges: exchanges{account: p.account, key: client.Key(fmt.Sprintf("%s-refund-%d", p.key, len(p.refunds)))},
			amount:    amount,
			want:      want,
		})
	}
	switch part := 1 + r.Int64N(p.amount-1); r.IntN(12) {
	case 0:
		add(0, http.StatusCreated)
	case 1: // in part, then the rest
		add(part, http.StatusCreated)
		add(0, http.StatusCreated)
	case 2: // in part, then too much
		add(part, http.StatusCreated)
		add(p.amount-part+1, http.StatusUnprocessableEntity)
	case 3:
		add(p.amount/2+1, 0)
		add(p.amount/2+1, 0)
		p.concurrent, p.atLeastOne = true, true
	}
}

type customers struct {
	clients   []*client.Client // by account
	transport *transport

	mu         sync.Mutex
	keys       map[string]*exchanges // by account and key
	statuses   map[int]int           // 0: no response
	replays    int
	sends      int
	random     *rand.Rand
	concurrent int // extra clients that sent the same request at the same time
}

func newCustomers(addresses, apiKeys []string, seed uint64) (*customers, error) {
	c := &customers{keys: map[string]*exchanges{}, statuses: map[int]int{}, random: random(seed, duplicateStream)}
	c.transport = &transport{
		addresses: addresses,
		random:    random(seed, transportStream),
		base:      &http.Transport{MaxIdleConnsPerHost: 100},
	}
	for account, apiKey := range apiKeys {
		next, err := client.New(client.Config{
			BaseURL:    "http://" + addresses[0], // the transport replaces it
			APIKey:     apiKey,
			Timeout:    5 * time.Second,
			Backoff:    200 * time.Millisecond,
			MaxBackoff: 2 * time.Second,
			Observe:    func(a client.Attempt) { c.observe(account, a) },
			Transport:  c.transport,
		})
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, next)
	}
	return c, nil
}

func keyOf(account int, key client.Key) string { return fmt.Sprintf("%d %s", account, key) }

// duplicates returns how many extra clients send a request at the same time.
func (c *customers) duplicates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := max(0, c.random.IntN(20)-16) // mostly 0, at most 3
	c.concurrent += n
	return n
}

// disconnect returns after which time a client closes its first connection. 0, the most
// frequent value, means never.
func (c *customers) disconnect() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, time.Duration(c.random.IntN(1000)-900)) * time.Millisecond
}

func (c *customers) watch(e *exchanges) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys[keyOf(e.account, e.key)] = e
}

func (c *customers) observe(account int, a client.Attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sends++
	if a.Err != nil {
		c.statuses[0]++
		return
	}
	c.statuses[a.Response.Status]++
	if a.Response.Replayed() {
		c.replays++
	}
	e := c.keys[keyOf(account, a.Key)]
	if e == nil || !isStored(a.Response) {
		return
	}
	for _, known := range e.stored {
		if same(known, a.Response) {
			return
		}
	}
	e.stored = append(e.stored, a.Response)
}

// buy creates an order and requests its refunds. It returns when each key has a final
// response or ctx ends.
func (c *customers) buy(ctx context.Context, p *purchase) {
	c.watch(&p.exchanges)
	response := c.finish(ctx, &p.exchanges, "/v1/orders", p.body)
	var order client.Order
	if response.Status != http.StatusCreated || json.Unmarshal(response.Body, &order) != nil {
		p.refunds = nil // an unexpected failure is reported
		return
	}
	var all sync.WaitGroup
	for _, r := range p.refunds {
		c.watch(&r.exchanges)
		request := func() { c.finish(ctx, &r.exchanges, refundPath(order.ID), r.body()) }
		if p.concurrent {
			all.Go(request)
		} else {
			request()
		}
	}
	all.Wait()
}

func refundPath(order string) string { return "/v1/orders/" + order + "/refunds" }

func (r *refund) body() []byte {
	if r.amount == 0 {
		return []byte(`{}`)
	}
	return fmt.Appendf(nil, `{"amount":%d}`, r.amount)
}

// finish sends a request, sometimes from several clients at once, and returns the first
// client's response.
func (c *customers) finish(ctx context.Context, e *exchanges, path string, body []byte) client.Response {
	request := client.Request{Key: e.key, Path: path, Body: body}
	var all sync.WaitGroup
	for range c.duplicates() {
		all.Go(func() { c.insist(ctx, e.account, request) })
	}
	if patience := c.disconnect(); patience > 0 {
		short, cancel := context.WithTimeout(ctx, patience)
		_, _ = c.clients[e.account].Send(short, request) // observe records the response
		cancel()
	}
	response := c.insist(ctx, e.account, request)
	all.Wait()
	return response
}

// insist retries as the reference client does, until the outcome is known.
func (c *customers) insist(ctx context.Context, account int, request client.Request) client.Response {
	for ctx.Err() == nil {
		response, err := c.clients[account].Do(ctx, request)
		var unknown *client.OutcomeUnknownError
		if !errors.As(err, &unknown) {
			return response
		}
		// The API rejected the last send, but the outcome of the earlier ones is unknown.
		pause(ctx, time.Second)
	}
	return client.Response{}
}

func (c *customers) replayAll(ctx context.Context, purchases []*purchase) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all sync.WaitGroup
	clients := make(chan struct{}, 16)
	for _, p := range purchases {
		clients <- struct{}{}
		all.Go(func() {
			defer func() { <-clients }()
			c.replay(ctx, p)
		})
	}
	all.Wait()
}

func (c *customers) replay(ctx context.Context, p *purchase) {
	again := func(e *exchanges, path string, body []byte) client.Response {
		response := c.insist(ctx, e.account, client.Request{Key: e.key, Path: path, Body: body})
		if response.Status != 0 {
			e.replay = &response
		}
		return response
	}
	response := again(&p.exchanges, "/v1/orders", p.body)
	var order client.Order
	if json.Unmarshal(response.Body, &order) == nil {
		for _, r := range p.refunds {
			again(&r.exchanges, refundPath(order.ID), r.body())
		}
	}
}

// transport sends each request to a random API process. Some requests have a Prefer
// header.
type transport struct {
	addresses []string
	base      *http.Transport
	calm      atomic.Bool // no Prefer header

	mu     sync.Mutex
	random *rand.Rand
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	address, choice := t.addresses[t.random.IntN(len(t.addresses))], t.random.IntN(100)
	t.mu.Unlock()
	r = r.Clone(r.Context())
	r.URL.Host = address
	switch {
	case t.calm.Load():
	case choice < 5:
		r.Header.Set("Prefer", "respond-async")
	case choice < 15:
		r.Header.Set("Prefer", "wait=2")
	}
	return t.base.RoundTrip(r)
}

func (c *customers) report(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(w, "requests\t%d\t%s (0: no response)\n", c.sends, byStatus(c.statuses))
	fmt.Fprintf(w, "keys\t%d\n", len(c.keys))
	fmt.Fprintf(w, "retries\t%d\t%d replayed\n", c.sends-len(c.keys)-c.concurrent, c.replays)
	fmt.Fprintf(w, "duplicates\t%d\n", c.concurrent)
}
