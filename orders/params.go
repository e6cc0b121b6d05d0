package orders

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"example.com/orders-api/receipts"
)

// Params are the members of POST /v1/orders: those of the order, whose amount is the total,
// and how it is paid.
type Params struct {
	Order
	PaymentMethod string
	OffSession    bool // the customer is not present
}

// Item is one line of an order. UnitAmount is in the currency's smallest unit.
type Item struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int64  `json:"quantity"`
	UnitAmount  int64  `json:"unit_amount"`
}

// Limits of a request. openapi.yaml states the same numbers.
const (
	maxEmail         = 254 // RFC 5321 section 4.5.3.1.3, less the angle brackets
	maxPaymentMethod = 251
	maxItems         = 100
	maxSKU           = 64
	maxDescription   = 500
	maxQuantity      = 10_000
	maxMetadata      = 20
	maxMetadataName  = 40
	maxMetadataValue = 500
	maxText          = 16 << 10 // bytes in UTF-8, of items and metadata together

	maxAmount = 99_999_999 // the largest charge that the provider accepts
	maxErrors = 100
)

var (
	currencyPattern      = regexp.MustCompile(`^[a-z]{3}$`)
	paymentMethodPattern = regexp.MustCompile(`^[a-z]{2,10}_[A-Za-z0-9_]{1,240}$`) // never a card number
)

// DecodeParams decodes a request from its canonical JSON. It returns a
// [*ValidationError] with the first hundred errors; an unknown member is one.
func DecodeParams(canonical []byte) (Params, error) {
	in := NewDecoder(canonical)
	var params Params
	params.Email = in.Text("email", Required, 3, maxEmail)
	params.Currency = in.Text("currency", Required, 3, 3)
	params.PaymentMethod = in.Text("payment_method", Required, 4, maxPaymentMethod)
	params.Items = in.items()
	params.Metadata = in.metadata()
	params.OffSession = in.flag("off_session")
	in.rejectUnknown()
	in.check("email", receipts.ValidAddress(params.Email), CodeInvalidFormat, "must be an email address such as ada@example.com")
	in.check("currency", currencyPattern.MatchString(params.Currency), CodeInvalidFormat, "must be a three-letter currency code in lower case, such as usd")
	in.check("payment_method", paymentMethodPattern.MatchString(params.PaymentMethod), CodeInvalidFormat, "must be the id of a payment method, such as pm_card_visa")
	if len(*in.errs) == 0 {
		params.Amount = in.total(params.Items)
	}
	if params.textSize() > maxText {
		in.addErrorAt("", CodeTooLong, fmt.Sprintf("the texts of items and metadata must have at most %d bytes in UTF-8 together", maxText))
	}
	return params, in.result()
}

// total returns the sum of valid items, at most maxAmount. It does not overflow.
func (d *Decoder) total(items []Item) (sum int64) {
	for _, item := range items {
		if item.Quantity > (maxAmount-sum)/item.UnitAmount {
			d.addError("items", CodeOutOfRange, fmt.Sprintf("the total must be at most %d", maxAmount))
			return 0
		}
		sum += item.Quantity * item.UnitAmount
	}
	return sum
}

func (p Params) textSize() (size int) {
	for _, item := range p.Items {
		size += len(item.SKU) + len(item.Description)
	}
	for name, value := range p.Metadata {
		size += len(name) + len(value)
	}
	return size
}

func (d *Decoder) items() []Item {
	value := d.member("items", Required)
	if value == nil {
		return nil
	}
	list, ok := decode[[]json.RawMessage](value)
	size := fmt.Sprintf("must have 1 to %d items", maxItems)
	switch {
	case !ok:
		d.addError("items", CodeInvalidType, "must be an array")
		return nil
	case len(list) < 1:
		d.addError("items", CodeTooShort, size)
		return nil
	case len(list) > maxItems:
		d.addError("items", CodeTooLong, size)
		return nil
	}
	items := make([]Item, len(list))
	for i, value := range list {
		if item := d.object("items/"+strconv.Itoa(i), value); item != nil {
			items[i] = Item{
				SKU:         item.Text("sku", Required, 1, maxSKU),
				Description: item.Text("description", Optional, 1, maxDescription),
				Quantity:    item.Integer("quantity", Required, maxQuantity),
				UnitAmount:  item.Integer("unit_amount", Required, maxAmount),
			}
			item.rejectUnknown()
		}
	}
	return items
}

func (d *Decoder) metadata() map[string]string {
	metadata := map[string]string{}
	value := d.member("metadata", Optional)
	if value == nil {
		return metadata
	}
	entries := d.object("metadata", value)
	switch {
	case entries == nil:
		return metadata
	case len(entries.members) > maxMetadata:
		d.addError("metadata", CodeTooLong, fmt.Sprintf("must have at most %d members", maxMetadata))
		return metadata
	}
	for _, name := range slices.Sorted(maps.Keys(entries.members)) {
		text, ok := decode[string](entries.members[name])
		switch {
		case name == "":
			entries.addError(name, CodeTooShort, "the name "+lengthDetail(1, maxMetadataName))
		case utf8.RuneCountInString(name) > maxMetadataName:
			entries.addError(name, CodeTooLong, "the name "+lengthDetail(1, maxMetadataName))
		case !ok:
			entries.addError(name, CodeInvalidType, "must be a string")
		case utf8.RuneCountInString(text) > maxMetadataValue:
			entries.addError(name, CodeTooLong, lengthDetail(0, maxMetadataValue))
		default:
			metadata[name] = text
		}
	}
	return metadata
}
