package stripetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"example.com/orders-api/payments/stripetest"
)

// A response is lost after the card was charged. The same key returns it again.
func Example() {
	stripe := stripetest.New(stripetest.Options{})
	server := httptest.NewServer(stripe)
	defer server.Close()
	defer stripe.Close()

	stripe.Inject(stripetest.Rule{
		Fault:    stripetest.BadGateway,
		Endpoint: "POST /v1/payment_intents",
		OrderID:  "order-1",
	})
	for range 2 {
		request, err := http.NewRequest(http.MethodPost, server.URL+"/v1/payment_intents", strings.NewReader(
			"amount=2000&currency=usd&payment_method=pm_card_visa&payment_method_types[0]=card&confirm=true"+
				"&metadata[order_id]=order-1"))
		if err != nil {
			fmt.Println(err)
			return
		}
		request.Header.Set("Authorization", "Bearer sk_test_example")
		request.Header.Set("Idempotency-Key", "order-1-charge")
		response, err := server.Client().Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		response.Body.Close()
		fmt.Printf("%d, replayed: %q\n", response.StatusCode, response.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("money moved:", stripe.MoneyMoved())
	fmt.Println("charged twice:", stripe.OrdersChargedTwice())
	// Output:
	// 502, replayed: ""
	// 200, replayed: "true"
	// money moved: map[usd:2000]
	// charged twice: []
}
