package orders

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each text of an order counts towards maxText, with two kinds of exceptions.
func TestTextSize(t *testing.T) {
	t.Parallel()
	except := []string{"Email", "Currency", "PaymentMethod", "Status", "Reference"} // short
	except = append(except, "PaymentIntentID", "Failure", "Disputes")               // not of the request
	var params OrderRequest
	texts := fill(reflect.ValueOf(&params), except)
	require.NotZero(t, texts)
	require.Equal(t, texts, params.textSize(), "add the text to textSize")
}

func fill(value reflect.Value, except []string) (texts int) {
	switch value.Kind() {
	case reflect.String:
		value.SetString("x")
		return 1
	case reflect.Pointer:
		if value.CanSet() { // otherwise it is params, or of another package
			value.Set(reflect.New(value.Type().Elem()))
		}
		return fill(value.Elem(), except)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		return fill(value.Index(0), except)
	case reflect.Map:
		value.Set(reflect.ValueOf(map[string]string{"x": "x"}))
		return 2
	case reflect.Struct:
		for i := range value.NumField() {
			if !slices.Contains(except, value.Type().Field(i).Name) {
				texts += fill(value.Field(i), except)
			}
		}
	}
	return texts
}
