// Runs requests with the client that ogen generated, for clients-check.sh: ogen URL KEY
// LATER. KEY is an API key of the server at URL. LATER is the server of later.mjs.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"

	"example.com/clients/ogen/client"
)

type apiKey string

func (k apiKey) ApiKey(context.Context, client.OperationName) (client.ApiKey, error) {
	return client.ApiKey{Token: string(k)}, nil
}

type caller struct{ *client.Client }

func newCaller(url, key string) caller {
	c, err := client.NewClient(url, apiKey(key))
	if err != nil {
		log.Fatal(err)
	}
	return caller{c}
}

// create returns an order or a problem.
func (s caller) create(key, paymentMethod string) (*client.OrderHeaders, client.ProblemDetails) {
	res, err := s.CreateOrder(context.Background(), &client.OrderRequest{
		Email: "ada@example.com", Currency: "usd", PaymentMethod: paymentMethod,
		Items: []client.OrderRequestItem{{Sku: "MUG-BLUE", Quantity: 1, UnitAmount: 1800}},
	}, client.CreateOrderParams{IdempotencyKey: client.IdempotencyKey(key)})
	var unexpected *client.UnexpectedProblemStatusCodeWithHeaders // the default response
	if errors.As(err, &unexpected) {
		return nil, unexpected.Response
	}
	switch res := res.(type) {
	case *client.OrderHeaders:
		return res, client.ProblemDetails{}
	case interface{ GetResponse() client.ProblemDetails }: // each problem has this method
		return nil, res.GetResponse()
	default:
		log.Fatalf("createOrder: %T, %v", res, err)
		return nil, client.ProblemDetails{}
	}
}

func expect(holds bool, name string, got any) {
	if !holds {
		log.Fatalf("%s: %+v", name, got)
	}
}

func main() {
	s, key := newCaller(os.Args[1], os.Args[2]), rand.Text()
	created, problem := s.create(key, "pm_card_visa")
	expect(created != nil && created.Response.Status == "paid" && !created.IdempotentReplayed.Set, "create", problem)
	replayed, problem := s.create(key, "pm_card_visa")
	expect(replayed != nil && replayed.IdempotentReplayed.Value && reflect.DeepEqual(replayed.Response, created.Response), "replay", problem)
	_, problem = s.create(key, "pm_card_mastercard")
	expect(problem.Type == "/problems/idempotency-key-reused" && problem.Retry == client.ProblemDetailsRetryNever, "reuse", problem)
	_, problem = s.create(rand.Text(), "pm_card_visa_chargeDeclined")
	expect(problem.Status == 402 && problem.Code.Value == "card_declined" && problem.OrderID.Set, "decline", problem)
	res, err := s.CreateRefund(context.Background(), &client.RefundRequest{},
		client.CreateRefundParams{ID: created.Response.ID, IdempotencyKey: client.IdempotencyKey(rand.Text())})
	refunded, ok := res.(*client.RefundHeaders)
	expect(ok && refunded.Response.Amount == created.Response.Amount, "refund", err)
	canceled, err := s.CancelOrder(context.Background(), &client.CancelRequest{},
		client.CancelOrderParams{ID: problem.OrderID.Value, IdempotencyKey: client.IdempotencyKey(rand.Text())})
	order, ok := canceled.(*client.CancelOrderOKHeaders)
	expect(ok && order.Response.Status == "payment_failed", "cancel", err)
	listed, err := s.ListOrders(context.Background(), client.ListOrdersParams{Limit: client.NewOptInt32(2)})
	page, ok := listed.(*client.OrderListHeaders)
	expect(ok && len(page.Response.Data) == 2 && page.Response.Data[1].ID == created.Response.ID, "list", err)

	later := newCaller(os.Args[3], os.Args[2])
	created, problem = later.create("a-later-version-201", "pm_card_visa")
	expect(created != nil && created.Response.Status == "later", "unknown status of an order", problem)
	for _, status := range []int{400, 401, 402, 409, 413, 415, 422, 429, 500, 503, 418} {
		_, problem = later.create(fmt.Sprint("a-later-version-", status), "pm_card_visa")
		expect(problem.Type == "/problems/later" && int(problem.Status) == status && problem.Retry.Validate() == nil, "unknown problem type", problem)
	}
}
