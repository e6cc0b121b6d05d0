package main_test

import (
	"flag"
	"testing"

	"example.com/orders-api/cmd/internal/programtest"
	playground "example.com/orders-api/cmd/playground"
)

func TestMain(m *testing.M) {
	// The tests mostly wait for processes. The flag -parallel overrides this.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	programtest.Main(m, playground.Main)
}
