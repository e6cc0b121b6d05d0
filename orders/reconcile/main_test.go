package reconcile_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(dbtest.Main{M: m})
}
