package validation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/operations/validation"
)

// A member of a nested object has one error for one fault, as any other.
func TestDecoder_checkNested(t *testing.T) {
	t.Parallel()
	in := validation.NewDecoder([]byte(`{"a/b":1,"list":[{"a/b":1},{"a/b":"valid","c":1},{"a/b":"x"},0],"object":{"c":1},"wrong":0}`))
	check := func(d *validation.Decoder) {
		text := d.Text("a/b", validation.Required, 1, 9)
		d.Check("a/b", text == "valid", validation.CodeInvalidFormat, "must be valid")
	}
	check(in)
	in.Objects("list", 9, check)
	in.Object("object", validation.Required, check)
	in.Object("wrong", validation.Optional, check)
	in.Object("absent", validation.Optional, check)
	var invalid *validation.Error
	require.ErrorAs(t, in.Err(), &invalid)
	require.Equal(t, []validation.Field{
		{Pointer: "/a~1b", Code: validation.CodeInvalidType, Detail: "must be a string"},
		{Pointer: "/list/0/a~1b", Code: validation.CodeInvalidType, Detail: "must be a string"},
		{Pointer: "/list/1/c", Code: validation.CodeUnknownMember, Detail: "is not a known member"},
		{Pointer: "/list/2/a~1b", Code: validation.CodeInvalidFormat, Detail: "must be valid"},
		{Pointer: "/list/3", Code: validation.CodeInvalidType, Detail: "must be an object"},
		{Pointer: "/object/a~1b", Code: validation.CodeRequired, Detail: "is required"},
		{Pointer: "/object/c", Code: validation.CodeUnknownMember, Detail: "is not a known member"},
		{Pointer: "/wrong", Code: validation.CodeInvalidType, Detail: "must be an object"},
	}, invalid.Fields)
}

// The errors of a hostile request do not grow with it (R25).
func TestDecoder_manyErrors(t *testing.T) {
	t.Parallel()
	var members []string
	for i := range 900 {
		members = append(members, fmt.Sprintf(`"x%d":0`, i))
	}
	err := validation.NewDecoder([]byte("{" + strings.Join(members, ",") + "}")).Err()
	var invalid *validation.Error
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Fields, 100)
}
