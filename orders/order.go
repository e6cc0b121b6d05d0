package orders

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/payments"
	"example.com/orders-api/receipts"
)

// Status of an order.
type Status string

// The states of an order.
const (
	StatusPending           Status = "pending"
	StatusRequiresAction    Status = "requires_action" // the customer must approve the payment
	StatusPaid              Status = "paid"
	StatusPaymentFailed     Status = "payment_failed" // never charged
	StatusPartiallyRefunded Status = "partially_refunded"
	StatusRefunded          Status = "refunded"
)

// Paid reports whether the order was charged, also after refunds.
func (s Status) Paid() bool {
	return s == StatusPaid || s == StatusPartiallyRefunded || s == StatusRefunded
}

// Open reports whether the payment of the order is in progress.
func (s Status) Open() bool { return s == StatusPending || s == StatusRequiresAction }

// Order is an order as the API shows it, with amounts in the currency's smallest unit.
type Order struct {
	ID              uuid.UUID           `json:"id"`
	Status          Status              `json:"status"`
	Amount          int64               `json:"amount"`
	AmountRefunded  int64               `json:"amount_refunded"`
	Currency        string              `json:"currency"`
	Email           *string             `json:"email"` // nil after [Service.Erase]
	Items           []Item              `json:"items"`
	PaymentIntentID *string             `json:"payment_intent_id"`
	Metadata        map[string]string   `json:"metadata"`
	CreatedAt       httpjson.Timestamp  `json:"created_at"`
	PaidAt          *httpjson.Timestamp `json:"paid_at"`
	Failure         *Failure            `json:"failure"` // nil unless the status is payment_failed
	Reference       *string             `json:"reference"`
	Disputes        []payments.Dispute  `json:"disputes"` // AmountRefunded does not include them
}

// Failure is why an order was not charged.
type Failure struct {
	Code        string  `json:"code"`
	DeclineCode *string `json:"decline_code"`
}

func orderID(accountID uuid.UUID, key idempotency.Key) uuid.UUID {
	return idempotency.DeriveID("order", accountID, key)
}

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
	UnitAmount  int64  `json:"unit_amount"` // 0 for a gift, negative for a discount
}

// openapi.yaml states the same limits.
const (
	maxReference   = 64
	maxDescription = 500
	maxText        = 16 << 10 // bytes in UTF-8, of items and metadata together
)

var paymentMethodPattern = regexp.MustCompile(`^[a-z]{2,10}_[A-Za-z0-9_]{1,240}$`) // never a card number

// DecodeOrderRequest decodes canonical JSON, or returns an [*httpjson.InvalidError].
func DecodeOrderRequest(canonical []byte) (OrderRequest, error) {
	in := httpjson.NewDecoder(canonical)
	email := in.Text("email", httpjson.Required, 3, 254)
	request := OrderRequest{Order: Order{Email: &email, Disputes: []payments.Dispute{}}}
	request.Currency = in.Text("currency", httpjson.Required, 3, 3)
	request.PaymentMethod = in.Text("payment_method", httpjson.Required, 4, 251)
	in.Objects("items", 100, func(item *httpjson.Decoder) {
		request.Items = append(request.Items, Item{
			SKU:         item.Text("sku", httpjson.Required, 1, 64),
			Description: item.Text("description", httpjson.Optional, 1, maxDescription),
			Quantity:    item.Integer("quantity", httpjson.Required, 1, 10_000),
			UnitAmount:  item.Integer("unit_amount", httpjson.Required, -payments.MaxAmount, payments.MaxAmount),
		})
	})
	request.Metadata = in.Texts("metadata", 20, 40, 500)
	request.OffSession = in.Flag("off_session")
	reference := in.Text("reference", httpjson.Optional, 1, maxReference)
	if reference != "" {
		request.Reference = &reference
	}
	in.Check("reference", validReference(reference) || reference == "", httpjson.CodeInvalidFormat, "must be printable ASCII characters")
	in.Check("email", receipts.ValidAddress(email), httpjson.CodeInvalidFormat,
		"must be an ASCII email address such as ada@example.com, with an internationalised domain in punycode (xn--…)")
	limits, known := payments.FindCurrency(request.Currency)
	in.Check("currency", known, httpjson.CodeInvalidValue, "must be the lower-case code of a currency that Stripe supports, such as usd")
	in.Check("payment_method", paymentMethodPattern.MatchString(request.PaymentMethod), httpjson.CodeInvalidFormat,
		"must be the id of a payment method, such as pm_card_visa")
	if in.Valid() {
		request.Amount = total(request.Items)
		in.Check("items", limits.Minimum <= request.Amount && request.Amount <= limits.Maximum, httpjson.CodeOutOfRange,
			fmt.Sprintf("the total must be from %d to %d in %s", limits.Minimum, limits.Maximum, request.Currency))
		in.Check("items", request.Amount%limits.Step == 0, httpjson.CodeInvalidValue,
			fmt.Sprintf("the total must be a multiple of %d in %s", limits.Step, request.Currency))
	}
	if request.textSize() > maxText {
		in.Reject("", httpjson.CodeTooLong, fmt.Sprintf("the texts of items and metadata must have at most %d bytes in UTF-8 together", maxText))
	}
	return request, in.Err()
}

// validReference reports whether s can be the reference of an order.
func validReference(s string) bool {
	return len(s) >= 1 && len(s) <= maxReference && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// total cannot overflow: 100 items × 10,000 units × 1e12 are 1e18.
func total(items []Item) (sum int64) {
	for _, item := range items {
		sum += item.Quantity * item.UnitAmount
	}
	return sum
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
