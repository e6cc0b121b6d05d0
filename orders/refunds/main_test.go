package refunds_test

import (
	"testing"

	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }
