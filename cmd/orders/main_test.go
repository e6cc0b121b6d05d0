package main_test

import (
	"flag"
	"testing"

	orders "example.com/orders-api/cmd/orders"
	"example.com/orders-api/internal/programtest"
)

func TestMain(m *testing.M) {
	// The tests mostly wait for processes. The flag -parallel overrides this.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	programtest.Main(m, orders.Main)
}
