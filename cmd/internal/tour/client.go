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

// newPurchase is one request of the tour, to be sent as often as it takes.
func newPurchase(paymentMethod string) client.Request {
	return client.Request{
		Key:  client.Key("demo-" + uuid.NewString()),
		Path: "/v1/orders",
		Body: fmt.Appendf(nil, `{"email":"ada@example.com","currency":"usd","payment_method":%q,`+
			`"items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}`, paymentMethod),
	}
}

// sent is a purchase with its answer.
type sent struct {
	purchase client.Request
	answer   client.Response
}

// newShop returns the client that the tour sends its purchases with.
func (t *tour) newShop() (*client.Client, error) {
	return client.New(client.Config{
		BaseURL:   t.base,
		APIKey:    t.APIKey,
		Transport: t.transport,
		// The API names its waits, and nobody else is waiting.
		Backoff:    time.Millisecond,
		MaxBackoff: 100 * time.Millisecond,
		Observe: func(e client.Attempt) {
			if e.Method == http.MethodPost {
				t.requests.Add(1)
			}
		},
	})
}

// sendUntilFinal sends the purchase until it is paid.
func (t *tour) sendUntilFinal(ctx context.Context, p client.Request) (client.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return t.shop.Do(ctx, p)
}

// paid checks that an answer is a paid order, and notes it for the audit.
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

// expectProblem reads an answer that should be a problem.
func expectProblem(a client.Response, status int, slug string) (client.Problem, error) {
	var p client.Problem
	err := json.Unmarshal(a.Body, &p)
	if a.Status != status || err != nil || p.Type != "/problems/"+slug {
		return p, errors.Join(fmt.Errorf("expected %d %s, got %s", status, slug, a), err)
	}
	return p, nil
}

// replayOf checks that an answer repeats another one byte for byte and says so.
func replayOf(a, original client.Response) error {
	if !a.Replayed() || a.Status != original.Status || !bytes.Equal(a.Body, original.Body) {
		return fmt.Errorf("expected a replay of %s, got %s", original, a)
	}
	return nil
}
