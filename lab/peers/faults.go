package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// outcome is what a peer did with a number of kills or of lost responses.
type outcome struct {
	Peer         string
	Kills        int
	Responses    int // lost
	Purchases    int
	Interrupted  int     // purchases whose first request got no response
	Doubled      int     // keys charged more than once
	Lost         int     // keys with 201, but without a charge or without a paid order
	Stuck        int     // keys without a final answer after patience
	Wrong        int     // answers that contradict the ledger, the card or an earlier answer
	Charged      int     // of Stuck or Wrong: the card was charged
	Pending      int     // orders that stay pending
	P50, Slowest float64 // seconds until the final answer of an interrupted purchase
}

// patience is the time that a key gets for its final answer after the last fault.
const patience = 2 * time.Minute

const (
	killClients = 32
	thinkTime   = 30 * time.Millisecond // of a client between two purchases
	retryPause  = 200 * time.Millisecond
)

// Short leases let abandoned keys continue within seconds, as in lab/soak. Without them a
// retry waits for up to 90 seconds.
func shortLeases() []string {
	return []string{"STEP_TIMEOUT=2s", "LEASE_DURATION=4s", "COMPLETER_GRACE=6s"}
}

// purchase is one key. Its amount is unique, so it identifies the charges.
type purchase struct {
	key      client.Key
	amount   int64
	declined bool // the card
	body     []byte

	interrupted bool
	took        time.Duration // until the final answer
	final       *client.Response
	again       *client.Response // the answer to the same request after all faults
}

// disturb kills the peer, and loses responses.
func (l *lab) disturb(ctx context.Context, p peer) (err error) {
	if l.kills+l.lost == 0 {
		return nil
	}
	i, err := l.open(ctx, p, "faults_"+p.name)
	if err != nil {
		return err
	}
	defer i.close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stripe := stripetest.New(stripetest.Options{})
	defer stripe.Close()
	server := &http.Server{Handler: stripe, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	defer func() { err = errors.Join(err, server.Close()) }()

	if err := i.start(ctx, i.database, "http://"+listener.Addr().String(), shortLeases()...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	c := &customers{instance: i}
	if l.kills > 0 {
		if err := c.report(ctx, stripe, outcome{Peer: i.name, Kills: l.kills}, func() error { return c.kill(ctx, l.kills) }); err != nil {
			return err
		}
	}
	if l.lost > 0 {
		return c.report(ctx, stripe, outcome{Peer: i.name, Responses: l.lost}, func() error { return c.loseResponses(ctx, l.lost) })
	}
	return nil
}

// customers create orders. Each repeats a purchase until its final answer, before the next one.
type customers struct {
	*instance
	next atomic.Int64

	mu        sync.Mutex
	purchases []*purchase
}

func (c *customers) report(ctx context.Context, stripe *stripetest.Server, f outcome, cause func() error) error {
	if err := cause(); err != nil {
		return err
	}
	c.replayAll(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := c.check(ctx, stripe, &f); err != nil {
		return err
	}
	c.purchases = nil
	c.lab.results.addFaults(f)
	text, err := json.Marshal(f)
	fmt.Fprintf(c.lab.out, "%s\n", text)
	return errors.Join(err, c.lab.results.write(c.lab.record))
}

func (c *customers) newPurchase() *purchase {
	n := c.next.Add(1)
	p := &purchase{key: client.Key(fmt.Sprintf("peers-purchase-%010d", n)), amount: 1000 + n, declined: n%10 == 0}
	method := "pm_card_visa"
	if p.declined {
		method = "pm_card_chargeDeclined"
	}
	p.body = orderBody(p.amount, method)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purchases = append(c.purchases, p)
	return p
}

// kill kills the API at random moments, while clients buy.
func (c *customers) kill(ctx context.Context, kills int) error {
	buying, stop := context.WithCancel(ctx)
	defer stop()
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var clients sync.WaitGroup
	for range killClients {
		clients.Go(func() {
			for buying.Err() == nil {
				c.buy(waiting, 0)
				pause(buying, thinkTime)
			}
		})
	}
	for range kills {
		pause(ctx, 50*time.Millisecond+rand.N(400*time.Millisecond)) //nolint:gosec // not a secret
		if err := errors.Join(c.api.Kill(), c.serve(ctx)); err != nil {
			return err
		}
	}
	stop()
	time.AfterFunc(patience, giveUp)
	clients.Wait()
	return nil
}

// loseResponses closes the connection of a first request at a random moment after it was sent.
func (c *customers) loseResponses(ctx context.Context, n int) error {
	for lost := 0; lost < n && ctx.Err() == nil; {
		waiting, giveUp := context.WithTimeout(ctx, patience)
		if p := c.buy(waiting, rand.N(10*time.Millisecond)+1); p.interrupted { //nolint:gosec // not a secret
			lost++
		}
		giveUp()
	}
	return ctx.Err()
}

// buy sends a purchase until its final answer, or until ctx ends. Unless lose is 0, the client
// closes its first connection so long after it has sent the request.
func (c *customers) buy(ctx context.Context, lose time.Duration) *purchase {
	p := c.newPurchase()
	start := time.Now()
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	if lose > 0 {
		first = httptrace.WithClientTrace(first, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { time.AfterFunc(lose, cancel) },
		})
	}
	response, err := c.send(first, p)
	for ctx.Err() == nil && (err != nil || !isFinal(response)) {
		p.interrupted = true
		pause(ctx, max(retryPause, response.RetryAfter()))
		response, err = c.send(ctx, p)
	}
	if err == nil && isFinal(response) {
		p.final, p.took = &response, time.Since(start)
	}
	return p
}

func (c *customers) send(ctx context.Context, p *purchase) (client.Response, error) {
	return c.client.Send(ctx, client.Request{Key: p.key, Path: "/v1/orders", Body: p.body})
}

func isFinal(r client.Response) bool {
	return r.Status < 500 && r.Status != http.StatusConflict && r.Status != http.StatusTooManyRequests
}

// replayAll sends each key with a final answer once more.
func (c *customers) replayAll(ctx context.Context) {
	var clients sync.WaitGroup
	purchases := make(chan *purchase)
	for range killClients {
		clients.Go(func() {
			for p := range purchases {
				if response, err := c.send(ctx, p); err == nil {
					p.again = &response
				}
			}
		})
	}
	for _, p := range c.purchases {
		if p.final != nil {
			purchases <- p
		}
	}
	close(purchases)
	clients.Wait()
}

// check compares the answers with the fake's ledger and the peer's tables.
func (c *customers) check(ctx context.Context, stripe *stripetest.Server, f *outcome) error {
	charges := map[int64]int{} // by amount
	for _, charge := range stripe.Charges() {
		charges[charge.Amount]++
	}
	paid := map[string]bool{}
	rows, err := c.pool.Query(ctx, "SELECT id::text, amount, status FROM orders")
	if err != nil {
		return err
	}
	defer rows.Close()
	amounts := map[int64]bool{}
	for _, p := range c.purchases {
		amounts[p.amount] = true
	}
	for rows.Next() {
		var id, status string
		var amount int64
		if err := rows.Scan(&id, &amount, &status); err != nil {
			return err
		}
		paid[id] = status == "paid"
		if status == "pending" && amounts[amount] {
			f.Pending++
		}
	}
	var waits []time.Duration
	for _, p := range c.purchases {
		f.Purchases++
		if p.interrupted {
			f.Interrupted++
			if p.final != nil {
				waits = append(waits, p.took)
			}
		}
		f.add(p, charges[p.amount], paid)
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		f.P50, f.Slowest = waits[len(waits)/2].Seconds(), waits[len(waits)-1].Seconds()
	}
	return rows.Err()
}

func (f *outcome) add(p *purchase, charges int, paid map[string]bool) {
	if charges > 1 {
		f.Doubled++
	}
	unpaid := false
	switch {
	case p.final == nil:
		f.Stuck++
		unpaid = true
	case p.final.Status == http.StatusCreated && (charges == 0 || !paid[orderID(*p.final)]):
		f.Lost++
	case p.final.Status != expected(p), p.again == nil, p.again.Status != p.final.Status, orderID(*p.again) != orderID(*p.final):
		f.Wrong++
		unpaid = p.final.Status != http.StatusCreated
	}
	if unpaid && charges > 0 {
		f.Charged++
	}
}

func expected(p *purchase) int {
	if p.declined {
		return http.StatusPaymentRequired
	}
	return http.StatusCreated
}

func orderID(r client.Response) string {
	var order struct{ ID string }
	_ = json.Unmarshal(r.Body, &order) // other responses have no id
	return order.ID
}
