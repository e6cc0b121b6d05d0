package payments

import (
	"encoding/json"
	"regexp"
	"slices"

	"github.com/stripe/stripe-go/v79"
)

// What Stripe sends is decoded into structs of the members that are used. The types of stripe-go have all
// members of its version, and one that Stripe sends in another form, as it does to some accounts, would
// make a decline or a whole page unreadable.

// lenient is a member that counts as absent if it has another type. So what depends on it must be safe without it: an
// error without a type or a code, for example, is Unknown.
type lenient[T any] struct{ value T }

func (l *lenient[T]) UnmarshalJSON(text []byte) error {
	var value T
	if json.Unmarshal(text, &value) == nil {
		l.value = value
	}
	return nil
}

// failure is Stripe's error, or the latest one of an intent. Its text is not in Error, because it may contain
// the client secret.
type failure struct {
	Type          lenient[stripe.ErrorType] `json:"type"`
	Code          lenient[stripe.ErrorCode] `json:"code"`
	DeclineCode   lenient[string]           `json:"decline_code"`
	Param         lenient[string]           `json:"param"`
	Message       lenient[string]           `json:"message"`
	PaymentIntent json.RawMessage           `json:"payment_intent"`
}

func (*failure) Error() string { return "an error of Stripe" }

// decodeFailure returns a [*failure], or ErrUnreadable for an error of a proxy.
func decodeFailure(text []byte) error {
	var body struct {
		Error *failure `json:"error"`
	}
	types := []stripe.ErrorType{stripe.ErrorTypeAPI, stripe.ErrorTypeCard, stripe.ErrorTypeIdempotency, stripe.ErrorTypeInvalidRequest}
	if json.Unmarshal(text, &body) != nil || body.Error == nil || !slices.Contains(types, body.Error.Type.value) {
		return ErrUnreadable
	}
	return body.Error
}

// decodeList returns the objects of a page undecoded, so that one which cannot be read does not hide the others.
func decodeList(text []byte) (objects []json.RawMessage, hasMore bool, err error) {
	var list struct {
		Data    []json.RawMessage `json:"data"`
		HasMore *bool             `json:"has_more"`
	}
	if json.Unmarshal(text, &list) != nil || list.Data == nil || list.HasMore == nil {
		return nil, false, ErrUnreadable
	}
	return list.Data, *list.HasMore, nil
}

// objectID matches ids that can be stored and logged.
var objectID = regexp.MustCompile(`^[!-~]{1,255}$`)

// reference is the id of another object, or the object, into which Stripe can expand the id.
type reference string

func (r *reference) UnmarshalJSON(text []byte) error {
	if text[0] != '{' {
		return json.Unmarshal(text, (*string)(r))
	}
	var object struct {
		ID string `json:"id"`
	}
	err := json.Unmarshal(text, &object)
	if *r = reference(object.ID); err == nil && object.ID == "" {
		err = ErrUnreadable
	}
	return err
}
