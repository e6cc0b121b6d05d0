package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/orders-api/lab/measure"
)

// clients send a mixture of requests. Of twenty, one is declined, one must be approved and is,
// one must be approved and is not, two are replays, two refund an order that was paid before, and
// one reads an order. The others are paid.
type clients struct {
	http        http.Client
	api, stripe string // URLs
	apiKey      string
	sent        atomic.Int64
	retries     atomic.Int64
	mu          sync.Mutex
	paid        []string // orders that are not refunded yet
	lastKey     string   // of an order that is finished
	lastOrder   string
}

func newClients(address, stripe, apiKey string) *clients {
	return &clients{
		http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 500}, Timeout: 30 * time.Second},
		api:  "http://" + address, stripe: stripe, apiKey: apiKey,
	}
}

const body = `{"email":"buyer@example.com","currency":"usd","payment_method":"%s",` +
	`"items":[{"sku":"beans-1kg","description":"Coffee beans, 1 kg","quantity":1,"unit_amount":2500}],"metadata":{"channel":"web"}}`

func (c *clients) send(ctx context.Context, _ int) (status int, err error) {
	i := c.sent.Add(1) // each part would begin at 0
	key := fmt.Sprintf("steady-order-%010d", i)
	c.mu.Lock()
	lastKey, lastOrder := c.lastKey, c.lastOrder
	c.mu.Unlock()
	switch i % 20 {
	case 3:
		return c.order(ctx, key, "pm_card_visa_chargeDeclined", http.StatusPaymentRequired)
	case 5:
		return c.order(ctx, key, "pm_card_threeDSecure2Required", http.StatusAccepted)
	case 7:
		if status, err = c.order(ctx, key, "pm_card_threeDSecure2Required", http.StatusAccepted); err == nil {
			err = c.approve(ctx, key)
		}
		return status, err
	case 9, 11:
		if lastKey != "" {
			return c.order(ctx, lastKey, "pm_card_visa", http.StatusCreated)
		}
	case 13, 15:
		if id := c.takePaid(); id != "" {
			status, _, err := c.do(ctx, http.MethodPost, c.api+"/v1/orders/"+id+"/refunds", key, "{}", http.StatusCreated)
			return status, err
		}
	case 17:
		if lastOrder != "" {
			status, _, err := c.do(ctx, http.MethodGet, c.api+"/v1/orders/"+lastOrder, "", "", http.StatusOK)
			return status, err
		}
	}
	return c.order(ctx, key, "pm_card_visa", http.StatusCreated)
}

func (c *clients) order(ctx context.Context, key, card string, want int) (int, error) {
	status, text, err := c.do(ctx, http.MethodPost, c.api+"/v1/orders", key, fmt.Sprintf(body, card), want)
	if err == nil && status == http.StatusCreated {
		var order struct{ ID string }
		err = json.Unmarshal(text, &order)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lastOrder = order.ID
		if card == "pm_card_visa" && key > c.lastKey { // otherwise it may be a replay
			c.paid = append(c.paid, order.ID)
			c.lastKey = key
		}
	}
	return status, err
}

func (c *clients) takePaid() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.paid) < 2 {
		return ""
	}
	id := c.paid[0]
	c.paid = c.paid[:0] // the others are never refunded
	return id
}

// approve does what a customer does, and then sends the request again, as the contract says.
func (c *clients) approve(ctx context.Context, key string) error {
	_, text, err := c.do(ctx, http.MethodGet, c.api+"/v1/idempotency-keys/"+key, "", "", http.StatusOK)
	if err != nil {
		return err
	}
	var state struct {
		Action struct {
			ClientSecret    string `json:"client_secret"`
			PaymentIntentID string `json:"payment_intent_id"`
		}
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	form := url.Values{"client_secret": {state.Action.ClientSecret}}.Encode()
	if _, _, err := c.do(ctx, http.MethodPost, c.stripe+"/customer/"+state.Action.PaymentIntentID+"/approve", "", form, http.StatusNoContent); err != nil {
		return err
	}
	_, err = c.order(ctx, key, "pm_card_threeDSecure2Required", http.StatusCreated)
	return err
}

// do repeats what the contract calls retryable, because other programs use this machine, too.
func (c *clients) do(ctx context.Context, method, address, key, body string, want int) (status int, text []byte, err error) {
	for range 30 {
		status, text, err = c.once(ctx, method, address, key, body, want)
		retryable := err != nil && (status == 0 || status == http.StatusServiceUnavailable || status == http.StatusConflict || status == http.StatusTooManyRequests)
		if !retryable || ctx.Err() != nil {
			break
		}
		c.retries.Add(1)
		time.Sleep(time.Second)
	}
	return status, text, err
}

func (c *clients) once(ctx context.Context, method, address, key, body string, want int) (status int, text []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if strings.HasPrefix(address, c.api) {
		request.Header.Set("Authorization", "Bearer "+c.apiKey)
		request.Header.Set("Content-Type", "application/json")
	} else {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if text, err = io.ReadAll(response.Body); err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s %s: %d, not %d: %s", method, address, response.StatusCode, want, bytes.TrimSpace(text))
	}
	return response.StatusCode, text, err
}

// audit fails if a request failed, or if our records, the provider's or the receipts disagree.
func (s *system) audit(ctx context.Context, all []part, retries int64, out io.Writer) error {
	var report measure.Report
	for _, p := range all {
		report.Requests = append(report.Requests, p.report.Requests...)
		report.Dropped += p.report.Dropped
	}
	failed := report.Filter(func(r measure.Request) bool { return r.Err != nil })
	fmt.Fprintf(out, "requests  %d; %d failed, %d retries\n", len(report.Requests), len(failed.Requests), retries)
	fmt.Fprintf(out, "commands as cron jobs  %d; %d failed\n", s.cronRuns, len(s.cronErrors))
	if len(failed.Requests) > 0 {
		return fmt.Errorf("%d requests failed, the first one with: %w", len(failed.Requests), failed.Requests[0].Err)
	}
	if report.Dropped > 0 {
		return fmt.Errorf("%d requests were not sent", report.Dropped)
	}
	if 50*len(s.cronErrors) > s.cronRuns {
		return fmt.Errorf("more than one cron job in fifty failed: %w", errors.Join(s.cronErrors...))
	}
	if _, err := s.command(ctx, "worker", "--once"); err != nil {
		return err
	}
	var orders, paid, receipts, unfinished int64
	if err := s.pool.QueryRow(ctx, `
SELECT count(*), count(*) FILTER (WHERE paid_at IS NOT NULL), (SELECT count(*) FROM staged_jobs),
       (SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL AND created_at < now() - interval '4 minutes')
  FROM orders`).Scan(&orders, &paid, &receipts, &unfinished); err != nil {
		return err
	}
	fmt.Fprintf(out, "orders  %d; %d paid\n", orders, paid)
	fmt.Fprintf(out, "receipts  %d\n", s.mails.Load())
	if unfinished > 0 || s.mails.Load()+receipts < paid {
		return fmt.Errorf("%d keys without a response are older than the charge window; %d receipts and %d jobs for %d paid orders",
			unfinished, s.mails.Load(), receipts, paid)
	}
	_, err := s.command(ctx, "reconcile", "--since", "2h")
	return err
}
