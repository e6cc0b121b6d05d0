package operations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/operations"
)

// A member of a nested object has one error for one fault, as any other.
func TestDecoder_checkNested(t *testing.T) {
	t.Parallel()
	in := operations.NewDecoder([]byte(`{"a/b":1,"list":[{"a/b":1},{"a/b":"x"}]}`))
	check := func(d *operations.Decoder) {
		text := d.Text("a/b", operations.Required, 1, 9)
		d.Check("a/b", text == "valid", operations.CodeInvalidFormat, "must be valid")
	}
	check(in)
	in.Objects("list", 9, check)
	var invalid *operations.ValidationError
	require.ErrorAs(t, in.Err(), &invalid)
	require.Equal(t, []operations.FieldError{
		{Pointer: "/a~1b", Code: operations.CodeInvalidType, Detail: "must be a string"},
		{Pointer: "/list/0/a~1b", Code: operations.CodeInvalidType, Detail: "must be a string"},
		{Pointer: "/list/1/a~1b", Code: operations.CodeInvalidFormat, Detail: "must be valid"},
	}, invalid.Fields)
}

// The errors of a hostile request do not grow with it (R25).
func TestDecoder_manyErrors(t *testing.T) {
	t.Parallel()
	var members []string
	for i := range 900 {
		members = append(members, fmt.Sprintf(`"x%d":0`, i))
	}
	err := operations.NewDecoder([]byte("{" + strings.Join(members, ",") + "}")).Err()
	var invalid *operations.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Fields, 100)
}
