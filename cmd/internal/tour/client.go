package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/client"
)

const price = 2500 // two teas at $12.50

// newPurchase returns an order request of the tour with a new key.
func newPurchase(paymentMethod string) client.Request {
	return client.Request{
		Key:  client.Key("demo-" + uuid.NewString()),
		Path: "/v1/orders",
		Body: fmt.Appendf(nil, `{"email":"ada@example.com","currency":"usd","payment_method":%q,`+
			`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`, paymentMethod),
	}
}

// sent is a purchase with its response.
type sent struct {
	purchase client.Request
	answer   client.Response
}

// newClient returns the client of the API.
func (t *tour) newClient() (*client.Client, error) {
	return client.New(client.Config{
		BaseURL:   t.base,
		APIKey:    t.APIKey,
		Transport: t.transport,
		// The API sends Retry-After, and no other client competes.
		Backoff:    time.Millisecond,
		MaxBackoff: 100 * time.Millisecond,
		Observe: func(e client.Attempt) {
			if e.Method == http.MethodPost {
				t.requests.Add(1)
			}
		},
	})
}

// sendUntilFinal sends the purchase until its response is final.
func (t *tour) sendUntilFinal(ctx context.Context, p client.Request) (client.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return t.client.Do(ctx, p)
}

// paid checks that a response is a new paid order, and records it for the audit.
func (t *tour) paid(a client.Response) (client.Order, error) {
	var o client.Order
	if a.Status != http.StatusCreated || a.Replayed() {
		return o, fmt.Errorf("expected 201 and a new order, got %s", a)
	}
	if err := json.Unmarshal(a.Body, &o); err != nil {
		return o, err
	}
	if o.Status != "paid" || o.Amount != price || o.PaymentIntentID == "" {
		return o, fmt.Errorf("expected a paid order of %d, got %s", price, a)
	}
	t.orders[o.ID] = sale{amount: o.Amount, claim: len(t.rows) - 1}
	return o, nil
}

// expectProblem reads a problem response with this status and slug.
func expectProblem(a client.Response, status int, slug string) (client.Problem, error) {
	var p client.Problem
	err := json.Unmarshal(a.Body, &p)
	if a.Status != status || err != nil || p.Type != "/problems/"+slug {
		return p, errors.Join(fmt.Errorf("expected %d %s, got %s", status, slug, a), err)
	}
	return p, nil
}

// replayOf checks that a response is a marked replay of another, byte for byte.
func replayOf(a, original client.Response) error {
	if !a.Replayed() || a.Status != original.Status || !bytes.Equal(a.Body, original.Body) {
		return fmt.Errorf("expected a replay of %s, got %s", original, a)
	}
	return nil
}
