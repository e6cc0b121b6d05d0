// Package model_test replays histories of spec/model/payment.pml on the real program. Spin
// simulates the model at random and prints each action with the state after it. The test
// makes package orders, its engine, a real PostgreSQL and the fake Stripe do the same, action
// by action, and compares the state after each one.
//
// A run of the model is a call of [orderstest.Shop.Create] that stops at gates: before each
// COMMIT, before the release that follows a lost COMMIT, and before each provider call. An
// action of the model opens the gate of its run, and lets it continue to the next one. Since
// the gate must be the one that the model's next action needs, the test also compares what
// the program is about to do. Reads that belong to one action of the model have one gate.
//
//   - A crash: neither the database nor the provider hears of the run again.
//   - A lost COMMIT: package proxytest breaks the connection.
//   - A lost call: the run gets an error, and the fake gets the call at once or later.
//   - A cancel: its first transaction, after which its process dies, and later another cancel.
//   - Time: the clocks of the database, the engine and the fake move forward together.
//   - Lost rows: the rows of the standby are written back.
//
// What the model decides at random is arranged: the card of an intent, the intents that the
// provider's search does not find yet, and when the provider forgets a key.
//
// A plain go test replays testdata/traces.txt. make -C lab traces simulates and replays
// 10,000 other histories, and needs Spin:
//
//	go -C lab/model test -run '^TestTraces$' -args -simulate=10000 -seed=1000
//
// All actions are replayed. Histories are simulated with -DTRACES: no key of the provider is
// remembered for a second day, because the fake forgets keys after 24 hours.
package model_test

import (
	"flag"
	"os"
	"testing"

	"example.com/orders-api/migrations/dbtest"
)

var (
	simulate = flag.Int("simulate", 0, "replay this many new traces, which needs Spin")
	seed     = flag.Int("seed", 1, "of the first new trace")
	update   = flag.Bool("update", false, "write testdata/traces.txt, which needs Spin")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(dbtest.Main{M: m}.Run())
}
