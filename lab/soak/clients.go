//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/client"
	"example.com/orders-api/idempotency"
)

type customers struct {
	clients   []*client.Client // by account
	accounts  []uuid.UUID
	transport *transport
	provider  *provider

	mu         sync.Mutex
	counts     map[string]int        // of what customers did after a challenge or a failure
	keys       map[string]*exchanges // by account and key
	orders     map[string]*purchase  // by the order's id, as far as clients know it
	statuses   map[int]int           // 0: no response
	replays    int
	reads      int // of keys
	sends      int
	random     *rand.Rand
	concurrent int // extra clients that sent the same request at the same time
}

func newCustomers(s *system, seed uint64) (*customers, error) {
	c := &customers{
		accounts: s.accounts, transport: s.transport, provider: s.provider, counts: map[string]int{}, keys: map[string]*exchanges{}, orders: map[string]*purchase{}, statuses: map[int]int{},
		random: random(seed, duplicateStream),
	}
	for account, apiKey := range s.apiKeys {
		next, err := client.New(client.Config{
			BaseURL:    "http://" + s.addresses[0], // the transport replaces it
			APIKey:     apiKey,
			Timeout:    5 * time.Second,
			Backoff:    200 * time.Millisecond,
			MaxBackoff: 2 * time.Second,
			Observe:    func(a client.Attempt) { c.observe(account, a) },
			Transport:  s.history.Transport(account, c.transport),
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

func (c *customers) watch(what string, e *exchanges) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys[keyOf(e.account, e.key)] = e
	e.created = createdBy(what, c.accounts[e.account], e.key)
	if e.sent.IsZero() {
		e.sent = time.Now()
	}
}

// learn records the order's id, which a 202 has, too.
func (c *customers) learn(p *purchase, order string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders[order] = p
}

func (c *customers) purchaseOf(order string) *purchase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orders[order]
}

// acknowledged returns the orders and refunds of a 201, and the intents of the other
// orders whose client secret was given out.
func (c *customers) acknowledged() (created []string, intents map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	intents = map[string]string{}
	for _, e := range c.keys {
		for _, a := range e.stored {
			if a.Status == http.StatusCreated {
				created = append(created, orderOf(a.Response)) // or the refund
			}
		}
		if len(e.stored) == 0 && e.intent != "" {
			intents[e.order] = e.intent
		}
	}
	return created, intents
}

// createdBy returns the order or refund that the key creates (R5).
func createdBy(what string, account uuid.UUID, key client.Key) string {
	return idempotency.DeriveID(what, account, idempotency.Key(key)).String()
}

// refunded reports whether the refund's client has a 201 that no failover makes untrue any more.
func (c *customers) refunded(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.keys {
		if e.created == id && len(e.stored) > 0 {
			return e.stored[0].Status == http.StatusCreated && time.Since(e.stored[0].at) > settled
		}
	}
	return false
}

func (c *customers) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

func (c *customers) observe(account int, a client.Attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sends++
	if a.Method == http.MethodGet {
		c.reads++
	}
	if a.Err != nil {
		c.statuses[0]++
		return
	}
	c.statuses[a.Response.Status]++
	if a.Response.Replayed() {
		c.replays++
	}
	e := c.keys[keyOf(account, a.Key)]
	if e == nil {
		return
	}
	if key, asks := requiredAction(a.Response); asks {
		e.order, e.intent = key.Order.ID, key.Action.PaymentIntentID
	}
	if !isStored(a.Response) {
		return
	}
	for _, known := range e.stored {
		if same(known.Response, a.Response) {
			return
		}
	}
	e.stored = append(e.stored, answer{a.Response, time.Now()})
}

// buy creates an order and requests its refunds. It returns when each key has a final
// response, the customer has left, or ctx ends.
func (c *customers) buy(ctx context.Context, p *purchase) {
	c.watch("order", &p.exchanges)
	var cancel sync.WaitGroup
	if p.cancel != nil {
		cancel.Go(func() { c.cancel(ctx, p) })
	}
	response := c.finish(ctx, &p.exchanges, "/v1/orders", p.body)
	if key, asks := requiredAction(response); asks {
		c.learn(p, key.Order.ID)
		response = c.meet(ctx, p, key)
	}
	cancel.Wait()
	if p.left {
		return
	}
	c.learn(p, orderOf(response))
	switch {
	case ctx.Err() != nil:
	case response.Status == http.StatusCreated:
		c.refund(ctx, p, orderOf(response))
	case p.challenge == declines, p.want == http.StatusCreated: // also lost rows, or too late
		c.buyAgain(ctx, p)
	}
}

// buyAgain makes the purchase with a new key, unless that was done already.
func (c *customers) buyAgain(ctx context.Context, p *purchase) {
	next, err := p.withNewKey()
	c.mu.Lock()
	done := p.again != nil || err != nil
	if !done {
		p.again = next
		c.counts["paid with a new key"]++
	}
	c.mu.Unlock()
	if !done {
		c.buy(ctx, next)
	}
}

// cancel cancels the order at a moment before, during or after its payment. It gives up if there is no
// order, because the order's row may be lost.
func (c *customers) cancel(ctx context.Context, p *purchase) {
	c.watch("order", p.cancel)
	for range 20 {
		pause(ctx, c.moment(3*time.Second))
		response := c.finish(ctx, p.cancel, cancelPath(p.created), []byte(`{}`))
		if response.Status != http.StatusNotFound { // the order is not created yet
			c.count(fmt.Sprintf("cancelled: %d", response.Status))
			return
		}
	}
	if ctx.Err() == nil {
		p.cancel, p.cancelForgotten = nil, true
	}
}

func (c *customers) refund(ctx context.Context, p *purchase, order string) {
	var all sync.WaitGroup
	for _, r := range p.refunds {
		c.watch("refund", &r.exchanges)
		request := func() {
			for c.finish(ctx, &r.exchanges, refundPath(order), r.body()).Status == http.StatusNotFound {
				// The order is lost. A retry restores it, unless its key has expired.
				request := client.Request{Key: p.key, Path: "/v1/orders", Body: p.body}
				if c.insist(ctx, p.account, request).Status != http.StatusCreated {
					return
				}
			}
		}
		if p.concurrent {
			all.Go(request)
		} else {
			request()
		}
	}
	all.Wait()
}

func requestOf(e *exchanges, path string, body []byte) client.Request {
	r := client.Request{Key: e.key, Path: path, Body: body}
	if strings.HasSuffix(path, "/cancel") {
		r.Success = http.StatusOK
	}
	return r
}

// finish sends a request, sometimes from several clients at once, and returns the first
// client's response.
func (c *customers) finish(ctx context.Context, e *exchanges, path string, body []byte) client.Response {
	request := requestOf(e, path, body)
	answered := make(chan struct{})
	var polls, all sync.WaitGroup
	if c.oneIn(4) {
		polls.Go(func() { c.poll(ctx, e, path, answered) })
	}
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
	close(answered)
	polls.Wait()
	return response
}

// poll reads the key until its request is answered, and once more. Some reads are followed by
// another request with the same key. It must be rejected, and it is invalid, so it cannot use
// a key whose row a failover has lost.
func (c *customers) poll(ctx context.Context, e *exchanges, path string, answered <-chan struct{}) {
	wait := 20 * time.Millisecond
	for again := true; again && ctx.Err() == nil; wait = min(2*wait, time.Second) {
		select {
		case <-answered:
			again = false
		case <-time.After(c.moment(wait)):
		}
		_, _ = c.clients[e.account].GetKey(ctx, e.key) // the history has the status
		if c.oneIn(5) {
			c.count(mistake)
			_, _ = c.clients[e.account].Send(ctx, client.Request{Key: e.key, Path: path, Body: []byte(`{"amount":-1}`)})
		}
	}
}

// mistake is what is counted of requests with the key of another one.
const mistake = "another request with the same key"

func (c *customers) oneIn(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n) == 0
}

// insist retries as the reference client does, until the outcome is known.
func (c *customers) insist(ctx context.Context, account int, request client.Request) client.Response {
	for ctx.Err() == nil {
		response, err := c.clients[account].Do(ctx, request)
		var unknown *client.OutcomeUnknownError
		if !errors.As(err, &unknown) {
			return response
		}
		if unknown.Problem != nil && unknown.Problem.Status == http.StatusNotFound {
			return client.Response{Status: http.StatusNotFound}
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
		before := e.stored
		response := c.conclude(ctx, e, path, body)
		e.stored = before // the check compares them with the replay, which observe has added
		if response.Status != 0 {
			e.replay = &response
			_, _ = c.clients[e.account].GetKey(ctx, e.key)
		}
		return response
	}
	response := again(&p.exchanges, "/v1/orders", p.body)
	if p.cancel != nil && !p.cancel.sent.IsZero() {
		again(p.cancel, cancelPath(p.created), []byte(`{}`))
	}
	for _, r := range p.refunds {
		if response.Status == http.StatusCreated && !r.sent.IsZero() {
			again(&r.exchanges, refundPath(orderOf(response)), r.body())
		}
	}
	if p.again != nil {
		c.replay(ctx, p.again)
	}
}

// conclude repeats a request until its response is final, also if a challenge is restored
// whose payment was cancelled.
func (c *customers) conclude(ctx context.Context, e *exchanges, path string, body []byte) client.Response {
	for {
		response := c.insist(ctx, e.account, requestOf(e, path, body))
		if _, asks := requiredAction(response); !asks || !pause(ctx, time.Second) {
			return response
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
	fmt.Fprintf(w, "requests\t%d\t%s (0: no response)\n", c.sends, list(c.statuses))
	fmt.Fprintf(w, "keys\t%d\n", len(c.keys))
	fmt.Fprintf(w, "retries\t%d\t%d replayed\n", c.sends-c.reads-len(c.keys)-c.concurrent-c.counts[mistake], c.replays)
	fmt.Fprintf(w, "reads of keys\t%d\n", c.reads)
	fmt.Fprintf(w, "duplicates\t%d\n", c.concurrent)
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		fmt.Fprintf(w, "%s\t%d\n", what, c.counts[what])
	}
}
