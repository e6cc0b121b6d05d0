package operations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/operations"
)

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
