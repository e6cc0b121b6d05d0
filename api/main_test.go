package api_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

// TestMain checks for leaked goroutines, and after all tests for uncovered promises of the
// contract.
func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{dbtest.Main{M: m}}) }

type suite struct{ dbtest.Main }

func (s suite) Run() int {
	flag.Parse()
	// The contract must be valid, except while its generated parts are written.
	if _, err := loadContract(); err != nil && flag.Lookup("update").Value.String() == "false" {
		fmt.Fprintln(os.Stderr, "openapi.yaml:", err)
		return 1
	}
	code := s.Main.Run()
	if code != 0 || !allTests() {
		return code
	}
	missing := coverage.missing()
	for _, promise := range missing {
		fmt.Fprintln(os.Stderr, "openapi.yaml promises what no test received:", promise)
	}
	if len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "Call fixture.expectResponses with requests that get these responses, or remove the promises.")
	}
	return min(len(missing), 1)
}

func allTests() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}
