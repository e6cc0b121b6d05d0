// Runs requests with the client that oapi-codegen generated, see ../ogen.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net/http"
	"os"
	"reflect"

	"example.com/clients/oapicodegen/client"
)

type caller struct{ *client.ClientWithResponses }

func newCaller(url, key string) caller {
	c, err := client.NewClientWithResponses(url, client.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	return caller{c}
}

// create returns the response and its problem, or nil.
func (s caller) create(key, paymentMethod string) (*client.CreateOrderResponse, *client.ProblemDetails) {
	res, err := s.CreateOrderWithResponse(context.Background(), &client.CreateOrderParams{IdempotencyKey: key}, client.OrderRequest{
		Email: "ada@example.com", Currency: "usd", PaymentMethod: paymentMethod,
		Items: []client.OrderRequestItem{{Sku: "MUG-BLUE", Quantity: 1, UnitAmount: 1800}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return res, cmp.Or(res.ApplicationproblemJSON400, res.ApplicationproblemJSON401, res.ApplicationproblemJSON402,
		res.ApplicationproblemJSON409, res.ApplicationproblemJSON413, res.ApplicationproblemJSON415,
		res.ApplicationproblemJSON422, res.ApplicationproblemJSON429, res.ApplicationproblemJSON500,
		res.ApplicationproblemJSON503, res.ApplicationproblemJSONDefault)
}

func expect(holds bool, name string, body []byte) {
	if !holds {
		log.Fatalf("%s: %s", name, body)
	}
}

func main() {
	s, key := newCaller(os.Args[1], os.Args[2]), rand.Text()
	created, _ := s.create(key, "pm_card_visa")
	expect(created.JSON201 != nil && created.JSON201.Status == "paid" && created.Headers201.IdempotentReplayed == nil, "create", created.Body)
	replayed, _ := s.create(key, "pm_card_visa")
	expect(replayed.JSON201 != nil && *replayed.Headers201.IdempotentReplayed && reflect.DeepEqual(replayed.JSON201, created.JSON201), "replay", replayed.Body)
	reused, problem := s.create(key, "pm_card_mastercard")
	expect(problem != nil && problem.Type == "/problems/idempotency-key-reused" && problem.Retry == "never", "reuse", reused.Body)
	declined, problem := s.create(rand.Text(), "pm_card_visa_chargeDeclined")
	expect(problem != nil && problem.Status == 402 && *problem.Code == "card_declined" && problem.OrderId != nil, "decline", declined.Body)
	refunded, err := s.CreateRefundWithResponse(context.Background(), created.JSON201.Id, &client.CreateRefundParams{IdempotencyKey: rand.Text()}, client.RefundRequest{})
	if err != nil {
		log.Fatal(err)
	}
	expect(refunded.JSON201 != nil && refunded.JSON201.Amount == created.JSON201.Amount, "refund", refunded.Body)
	canceled, err := s.CancelOrderWithResponse(context.Background(), *problem.OrderId, &client.CancelOrderParams{IdempotencyKey: rand.Text()}, client.CancelRequest{})
	if err != nil {
		log.Fatal(err)
	}
	expect(canceled.JSON200 != nil && canceled.JSON200.Status == "payment_failed", "cancel", canceled.Body)
	page, err := s.ListOrdersWithResponse(context.Background(), &client.ListOrdersParams{Limit: new(int32(2))})
	if err != nil {
		log.Fatal(err)
	}
	expect(page.JSON200 != nil && len(page.JSON200.Data) == 2 && page.JSON200.Data[1].Id == created.JSON201.Id, "list", page.Body)

	later := newCaller(os.Args[3], os.Args[2])
	created, _ = later.create("a-later-version-201", "pm_card_visa")
	expect(created.JSON201 != nil && created.JSON201.Status == "later", "unknown status of an order", created.Body)
	for _, status := range []int{400, 401, 402, 409, 413, 415, 422, 429, 500, 503, 418} {
		res, problem := later.create(fmt.Sprint("a-later-version-", status), "pm_card_visa")
		expect(problem != nil && problem.Type == "/problems/later" && int(problem.Status) == status && problem.Retry != "", "unknown problem type", res.Body)
	}
}
