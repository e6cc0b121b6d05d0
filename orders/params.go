package orders

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/orders-api/receipts"
)

// Params are the members of POST /v1/orders.
type Params struct {
	Email         string            `json:"email"`
	Currency      string            `json:"currency"`
	PaymentMethod string            `json:"payment_method"`
	Items         []Item            `json:"items"`
	Metadata      map[string]string `json:"metadata"`
	OffSession    bool              `json:"off_session"` // the customer is not present

	Amount int64 `json:"-"` // the total in the currency's smallest unit
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

// total returns the sum of the items, at most maxAmount. It does not overflow.
func total(items []Item) (int64, error) {
	var sum int64
	for _, item := range items {
		if item.Quantity < 1 || item.UnitAmount < 1 {
			return 0, errors.New("quantities and amounts must be positive")
		}
		if item.Quantity > (maxAmount-sum)/item.UnitAmount {
			return 0, fmt.Errorf("the total must be at most %d", maxAmount)
		}
		sum += item.Quantity * item.UnitAmount
	}
	return sum, nil
}

// DecodeParams decodes a request from its canonical JSON. It returns a
// [*ValidationError] with the first hundred errors; an unknown member is one.
func DecodeParams(canonical []byte) (Params, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(canonical, &members); err != nil {
		return Params{}, fmt.Errorf("decode order: %w", err)
	}
	in := &reader{}
	params := Params{
		Email:         in.text(members, "", "email", required, 3, maxEmail),
		Currency:      in.text(members, "", "currency", required, 3, 3),
		PaymentMethod: in.text(members, "", "payment_method", required, 4, maxPaymentMethod),
		Items:         in.items(members),
		Metadata:      in.metadata(members),
		OffSession:    in.flag(members, "off_session"),
	}
	in.unknown(members, "", "email", "currency", "payment_method", "items", "metadata", "off_session")

	in.check("/email", params.Email, receipts.ValidAddress, CodeInvalidFormat, "must be an email address such as ada@example.com")
	in.check("/currency", params.Currency, currencyPattern.MatchString, CodeInvalidFormat, "must be a three-letter currency code in lower case, such as usd")
	in.check("/payment_method", params.PaymentMethod, paymentMethodPattern.MatchString, CodeInvalidFormat, "must be the id of a payment method, such as pm_card_visa")
	if len(in.errs) == 0 {
		var err error
		if params.Amount, err = total(params.Items); err != nil {
			in.addError("/items", CodeOutOfRange, err.Error())
		}
	}
	if params.textSize() > maxText {
		in.addError("", CodeTooLong, fmt.Sprintf("the texts of items and metadata must have at most %d bytes in UTF-8 together", maxText))
	}
	if len(in.errs) > 0 {
		return Params{}, &ValidationError{Fields: in.errs}
	}
	return params, nil
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

// reader reads members and collects errors. encoding/json alone would ignore the case of
// names and stop at the first error.
type reader struct{ errs []FieldError }

const (
	required = true
	optional = false
)

func (r *reader) addError(pointer, code, detail string) {
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, FieldError{Pointer: pointer, Code: code, Detail: detail})
	}
}

func (r *reader) check(pointer, value string, valid func(string) bool, code, detail string) {
	if slices.ContainsFunc(r.errs, func(f FieldError) bool { return f.Pointer == pointer }) {
		return
	}
	if !valid(value) {
		r.addError(pointer, code, detail)
	}
}

func (r *reader) member(members map[string]json.RawMessage, base, name string, must bool) json.RawMessage {
	value, ok := members[name]
	if !ok && must {
		r.addError(base+"/"+name, CodeRequired, "is required")
	}
	return value
}

// text reads a string without control characters. The limits are in characters.
func (r *reader) text(members map[string]json.RawMessage, base, name string, must bool, minimum, maximum int) string {
	value := r.member(members, base, name, must)
	if value == nil {
		return ""
	}
	pointer := base + "/" + name
	var s string
	switch {
	case value[0] != '"' || json.Unmarshal(value, &s) != nil:
		r.addError(pointer, CodeInvalidType, "must be a string")
	case strings.ContainsFunc(s, unicode.IsControl):
		r.addError(pointer, CodeInvalidFormat, "must not contain control characters")
	case utf8.RuneCountInString(s) < minimum:
		r.addError(pointer, CodeTooShort, lengthDetail(minimum, maximum))
	case utf8.RuneCountInString(s) > maximum:
		r.addError(pointer, CodeTooLong, lengthDetail(minimum, maximum))
	}
	return s
}

func lengthDetail(minimum, maximum int) string {
	if minimum == maximum {
		return fmt.Sprintf("must be %d characters long", minimum)
	}
	return fmt.Sprintf("must be %d to %d characters long", minimum, maximum)
}

func (r *reader) flag(members map[string]json.RawMessage, name string) (set bool) {
	value := r.member(members, "", name, optional)
	if value != nil && (value[0] == 'n' || json.Unmarshal(value, &set) != nil) { // null is not a boolean
		r.addError("/"+name, CodeInvalidType, "must be true or false")
	}
	return set
}

// integer reads an integer from 1 to maximum. 2.0 and 2e0 are 2, as in RFC 8785.
func (r *reader) integer(members map[string]json.RawMessage, base, name string, must bool, maximum int64) int64 {
	value := r.member(members, base, name, must)
	if value == nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err != nil || f != math.Trunc(f):
		r.addError(base+"/"+name, CodeInvalidType, "must be an integer")
	case f < 1 || f > float64(maximum):
		r.addError(base+"/"+name, CodeOutOfRange, fmt.Sprintf("must be from 1 to %d", maximum))
	}
	return int64(f)
}

func (r *reader) items(members map[string]json.RawMessage) []Item {
	value := r.member(members, "", "items", required)
	if value == nil {
		return nil
	}
	var list []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &list) != nil {
		r.addError("/items", CodeInvalidType, "must be an array")
		return nil
	}
	if len(list) < 1 || len(list) > maxItems {
		code := CodeTooLong
		if len(list) < 1 {
			code = CodeTooShort
		}
		r.addError("/items", code, fmt.Sprintf("must have 1 to %d items", maxItems))
		return nil
	}
	items := make([]Item, len(list))
	for i, value := range list {
		base := "/items/" + strconv.Itoa(i)
		item, err := object(value)
		if err != nil {
			r.addError(base, CodeInvalidType, "must be an object")
			continue
		}
		items[i] = Item{
			SKU:         r.text(item, base, "sku", required, 1, maxSKU),
			Description: r.text(item, base, "description", optional, 1, maxDescription),
			Quantity:    r.integer(item, base, "quantity", required, maxQuantity),
			UnitAmount:  r.integer(item, base, "unit_amount", required, maxAmount),
		}
		r.unknown(item, base, "sku", "description", "quantity", "unit_amount")
	}
	return items
}

func (r *reader) metadata(members map[string]json.RawMessage) map[string]string {
	metadata := map[string]string{}
	value := r.member(members, "", "metadata", optional)
	if value == nil {
		return metadata
	}
	entries, err := object(value)
	if err != nil {
		r.addError("/metadata", CodeInvalidType, "must be an object")
		return metadata
	}
	if len(entries) > maxMetadata {
		r.addError("/metadata", CodeTooLong, fmt.Sprintf("must have at most %d members", maxMetadata))
		return metadata
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		value := entries[name]
		addError := func(code, detail string) { r.addError("/metadata/"+escapePointer(name), code, detail) }
		var s string
		switch {
		case name == "":
			addError(CodeTooShort, "the name "+lengthDetail(1, maxMetadataName))
		case utf8.RuneCountInString(name) > maxMetadataName:
			addError(CodeTooLong, "the name "+lengthDetail(1, maxMetadataName))
		case value[0] != '"' || json.Unmarshal(value, &s) != nil:
			addError(CodeInvalidType, "must be a string")
		case utf8.RuneCountInString(s) > maxMetadataValue:
			addError(CodeTooLong, lengthDetail(0, maxMetadataValue))
		default:
			metadata[name] = s
		}
	}
	return metadata
}

func (r *reader) unknown(members map[string]json.RawMessage, base string, known ...string) {
	var unknown []string
	for name := range members {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		r.addError(base+"/"+escapePointer(name), CodeUnknownMember, "is not a known member")
	}
}

func object(value json.RawMessage) (map[string]json.RawMessage, error) {
	if !bytes.HasPrefix(value, []byte("{")) {
		return nil, errors.New("not an object")
	}
	var members map[string]json.RawMessage
	return members, json.Unmarshal(value, &members)
}

// escapePointer escapes a name for a JSON pointer (RFC 6901) and truncates a long one.
func escapePointer(name string) string {
	if runes := []rune(name); len(runes) > maxMetadataName {
		name = string(runes[:maxMetadataName]) + "…"
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
