package api_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"example.com/orders-api/migrations/dbtest"
)

// TestMain looks for leaked goroutines and, after a run of all tests, for
// promises of the contract that no test has seen kept.
func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{dbtest.Main{M: m}}) }

type suite struct{ dbtest.Main }

func (s suite) Run() int {
	// A case is a whole purchase, so fewer than rapid's hundred will do for each
	// run of the tests. -rapid.checks=1000 makes more.
	if err := flag.Set("rapid.checks", "25"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Every exchange is checked against the contract, and against one that cannot be
	// read none would be answered.
	if _, err := loadContract(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi.yaml:", err)
		return 1
	}
	code := s.Main.Run()
	if code != 0 || !allTests() {
		return code
	}
	missing := coverage.missing()
	for _, promise := range missing {
		fmt.Fprintln(os.Stderr, "promised in openapi.yaml, but no test saw it:", promise)
	}
	return min(len(missing), 1)
}

// allTests says whether no flag has narrowed the run.
func allTests() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}
