package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// answer is what the API said.
type answer struct {
	status     int
	body       []byte
	replayed   bool
	retryAfter time.Duration
}

// sent is a purchase with its answer.
type sent struct {
	purchase
	answer answer
}

func (a answer) String() string { return fmt.Sprintf("%d: %s", a.status, a.body) }

// send posts the purchase once.
func (t *tour) send(ctx context.Context, p purchase) (answer, error) {
	t.requests.Add(1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+"/v1/orders", bytes.NewReader(p.body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+t.APIKey)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", p.key)
	request.GetBody = nil // net/http must not repeat it on its own: we count
	response, err := t.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return answer{
		status:     response.StatusCode,
		body:       body,
		replayed:   response.Header.Get("Idempotent-Replayed") == "true",
		retryAfter: time.Duration(seconds) * time.Second,
	}, nil
}

// sendUntilFinal posts the purchase until its answer is final, as a client
// should: the same request, after Retry-After.
func (t *tour) sendUntilFinal(ctx context.Context, p purchase) (answer, error) {
	return t.sendUntil(ctx, p, func(answer) {})
}

// sendUntil tells notify of each answer that is not final.
func (t *tour) sendUntil(ctx context.Context, p purchase, notify func(answer)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		a, err := t.send(ctx, p)
		if err != nil {
			return answer{}, err
		}
		if a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
			return a, nil
		}
		if a.retryAfter <= 0 {
			return answer{}, fmt.Errorf("no Retry-After with %s", a)
		}
		notify(a)
		select {
		case <-time.After(a.retryAfter):
		case <-ctx.Done():
			return answer{}, fmt.Errorf("no final answer: %w", ctx.Err())
		}
	}
}

// order is what the tour reads of an order.
type order struct {
	ID              uuid.UUID `json:"id"`
	Status          string    `json:"status"`
	Amount          int64     `json:"amount"`
	PaymentIntentID string    `json:"payment_intent_id"`
}

// listOrders returns the account's orders, of which a tour makes less than a
// page.
func (t *tour) listOrders(ctx context.Context) ([]order, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base+"/v1/orders?limit=100", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+t.APIKey)
	response, err := t.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var page struct {
		Data []order `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return nil, fmt.Errorf("list orders: %w", err)
	}
	return page.Data, nil
}

// paid checks that an answer is a paid order, and notes it for the audit.
func (t *tour) paid(a answer) (order, error) {
	var o order
	if a.status != http.StatusCreated || a.replayed {
		return o, fmt.Errorf("expected 201 and a new order, got %s", a)
	}
	if err := json.Unmarshal(a.body, &o); err != nil {
		return o, err
	}
	if o.Status != "paid" || o.Amount != price || o.PaymentIntentID == "" {
		return o, fmt.Errorf("expected a paid order of %d, got %s", price, a)
	}
	t.orders[o.ID] = sale{amount: o.Amount, claim: len(t.rows) - 1}
	return o, nil
}

// problem is what the tour reads of a problem document.
type problem struct {
	Type        string    `json:"type"`
	DeclineCode string    `json:"decline_code"`
	OrderID     uuid.UUID `json:"order_id"`
}

func (a answer) problem() (problem, error) {
	var p problem
	return p, json.Unmarshal(a.body, &p)
}

func (a answer) expectProblem(status int, slug string) error {
	p, err := a.problem()
	if a.status != status || err != nil || p.Type != "/problems/"+slug {
		return errors.Join(fmt.Errorf("expected %d %s, got %s", status, slug, a), err)
	}
	return nil
}

// replayOf checks that an answer repeats another one byte for byte and says so.
func replayOf(a, original answer) error {
	if !a.replayed || a.status != original.status || !bytes.Equal(a.body, original.body) {
		return fmt.Errorf("expected a replay of %s, got %s", original, a)
	}
	return nil
}
