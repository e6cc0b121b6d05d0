package httpjson_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/httpjson"
)

// A member of a nested object has one error for one fault, as any other.
func TestDecoder_checkNested(t *testing.T) {
	t.Parallel()
	in := httpjson.NewDecoder([]byte(`{"a/b":1,"list":[{"a/b":1},{"a/b":"valid","c":1},{"a/b":"x"},0]}`))
	check := func(d *httpjson.Decoder) {
		text := d.Text("a/b", httpjson.Required, 1, 9)
		d.Check("a/b", text == "valid", httpjson.CodeInvalidFormat, "must be valid")
	}
	check(in)
	in.Objects("list", 9, check)
	var invalid *httpjson.InvalidError
	require.ErrorAs(t, in.Err(), &invalid)
	require.Equal(t, []httpjson.Field{
		{Pointer: "/a~1b", Code: httpjson.CodeInvalidType, Detail: "must be a string"},
		{Pointer: "/list/0/a~1b", Code: httpjson.CodeInvalidType, Detail: "must be a string"},
		{Pointer: "/list/1/c", Code: httpjson.CodeUnknownMember, Detail: "is not a known member"},
		{Pointer: "/list/2/a~1b", Code: httpjson.CodeInvalidFormat, Detail: "must be valid"},
		{Pointer: "/list/3", Code: httpjson.CodeInvalidType, Detail: "must be an object"},
	}, invalid.Fields)
}

// The errors of a hostile request do not grow with it (R25).
func TestDecoder_manyErrors(t *testing.T) {
	t.Parallel()
	var members []string
	for i := range 900 {
		members = append(members, fmt.Sprintf(`"x%d":0`, i))
	}
	err := httpjson.NewDecoder([]byte("{" + strings.Join(members, ",") + "}")).Err()
	var invalid *httpjson.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Fields, 100)
}
