package orders

import (
	"fmt"
	"regexp"
	"strings"

	"example.com/orders-api/operations"
	"example.com/orders-api/receipts"
)

// OrderRequest is an order as POST /v1/orders requests it.
type OrderRequest struct {
	Order
	PaymentMethod string
	OffSession    bool // the customer is not present
}

// Item is one line of an order.
type Item struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// Limits of a request, as in openapi.yaml.
const (
	maxEmail         = 254 // RFC 5321, 4.5.3.1.3
	maxPaymentMethod = 251
	maxReference     = 64
	maxItems         = 100
	maxSKU           = 64
	maxDescription   = 500
	maxQuantity      = 10_000
	maxMetadata      = 20
	maxMetadataName  = 40
	maxMetadataValue = 500
	maxText          = 16 << 10 // bytes in UTF-8, of items and metadata together

	maxAmount = 99_999_999 // the largest charge that the provider accepts
)

var (
	currencyPattern      = regexp.MustCompile(`^[a-z]{3}$`)
	paymentMethodPattern = regexp.MustCompile(`^[a-z]{2,10}_[A-Za-z0-9_]{1,240}$`) // never a card number
)

// DecodeOrderRequest decodes canonical JSON, or returns an [*operations.ValidationError].
func DecodeOrderRequest(canonical []byte) (OrderRequest, error) {
	in := operations.NewDecoder(canonical)
	var request OrderRequest
	request.Email = in.Text("email", operations.Required, 3, maxEmail)
	request.Currency = in.Text("currency", operations.Required, 3, 3)
	request.PaymentMethod = in.Text("payment_method", operations.Required, 4, maxPaymentMethod)
	in.Objects("items", maxItems, func(item *operations.Decoder) {
		request.Items = append(request.Items, Item{
			SKU:         item.Text("sku", operations.Required, 1, maxSKU),
			Description: item.Text("description", operations.Optional, 1, maxDescription),
			Quantity:    item.Integer("quantity", operations.Required, maxQuantity),
			UnitAmount:  item.Integer("unit_amount", operations.Required, maxAmount),
		})
	})
	request.Metadata = in.Texts("metadata", maxMetadata, maxMetadataName, maxMetadataValue)
	request.OffSession = in.Flag("off_session")
	reference := in.Text("reference", operations.Optional, 1, maxReference)
	request.Reference = optional(reference)
	in.Check("reference", ValidReference(reference) || reference == "", operations.CodeInvalidFormat, "must be printable ASCII characters")
	in.Check("email", receipts.ValidAddress(request.Email), operations.CodeInvalidFormat, "must be an email address such as ada@example.com")
	in.Check("currency", currencyPattern.MatchString(request.Currency), operations.CodeInvalidFormat,
		"must be a three-letter currency code in lower case, such as usd")
	in.Check("payment_method", paymentMethodPattern.MatchString(request.PaymentMethod), operations.CodeInvalidFormat,
		"must be the id of a payment method, such as pm_card_visa")
	if in.Valid() {
		var ok bool
		request.Amount, ok = total(request.Items)
		in.Check("items", ok, operations.CodeOutOfRange, fmt.Sprintf("the total must be at most %d", maxAmount))
	}
	if request.textSize() > maxText {
		in.Reject("", operations.CodeTooLong, fmt.Sprintf("the texts of items and metadata must have at most %d bytes in UTF-8 together", maxText))
	}
	return request, in.Err()
}

// ValidReference reports whether s can be the reference of an order.
func ValidReference(s string) bool {
	return len(s) >= 1 && len(s) <= maxReference && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

func total(items []Item) (sum int64, ok bool) {
	for _, item := range items {
		if item.Quantity > (maxAmount-sum)/item.UnitAmount {
			return 0, false
		}
		sum += item.Quantity * item.UnitAmount
	}
	return sum, true
}

func (r OrderRequest) textSize() (size int) {
	for _, item := range r.Items {
		size += len(item.SKU) + len(item.Description)
	}
	for name, value := range r.Metadata {
		size += len(name) + len(value)
	}
	return size
}
