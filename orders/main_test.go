package orders_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

// TestMain sets the number of cases of a property test, unless a flag sets it.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(dbtest.Main{M: m})
}
