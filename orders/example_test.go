package orders_test

import (
	"errors"
	"fmt"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/orders"
)

// All errors are listed, each with a JSON pointer. Names are case-sensitive.
func ExampleDecodeOrderRequest() {
	canonical, err := idempotency.Canonicalize([]byte(`{
		"email": "ada@example.com",
		"Currency": "usd",
		"payment_method": "4242424242424242",
		"items": [{"sku": "TEA", "quantity": 0, "unit_amount": 12.5}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = orders.DecodeOrderRequest(canonical)
	var invalid *httpjson.InvalidError
	if errors.As(err, &invalid) {
		for _, field := range invalid.Fields {
			fmt.Println(field.Pointer, field.Code+":", field.Detail)
		}
	}
	// Output:
	// /currency required: is required
	// /items/0/quantity out_of_range: must be from 1 to 10000
	// /items/0/unit_amount invalid_type: must be an integer
	// /payment_method invalid_format: must be the id of a payment method, such as pm_card_visa
	// /Currency unknown_member: is not a known member
}
