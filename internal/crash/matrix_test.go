package crash_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMatrix breaks each flow at its boundaries.
func TestMatrix(t *testing.T) {
	t.Parallel()
	program := build(t)
	list := everyTrial(t)
	if *matrix != all {
		list = someOf(list)
	}
	var played, failed atomic.Int64
	began := time.Now()
	t.Cleanup(func() {
		fmt.Printf("crash matrix: %d cases, %d failed, %v\n", played.Load(), failed.Load(), time.Since(began).Round(time.Second))
	})
	for _, c := range list {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			played.Add(1)
			defer func() {
				if t.Failed() {
					failed.Add(1)
					t.Logf("struck %s: %s\nagain: go test ./internal/crash -run '^TestMatrix$/%s' -args -matrix=all", c.moment, c.what, c)
				}
			}()
			violations, err := c.run(t, program)
			require.NoError(t, err)
			require.Empty(t, violations, strings.Join(violations, "\n"))
		})
	}
}

// everyTrial is the list of cases, from the file of boundaries: every boundary of
// every flow, at both moments, with every fault. A paid order is recovered by
// everybody who can; in the other flows they take turns.
func everyTrial(t testing.TB) []trial {
	t.Helper()
	recorded := recordedBoundaries(t)
	var list []trial
	for _, f := range flows() {
		boundaries := recorded[f.name]
		require.NotEmpty(t, boundaries, "%s is not recorded", f.name)
		for i, what := range boundaries {
			for _, m := range []moment{before, after} {
				by := f.recoveries(boundaries, i+1, m)
				for k, fault := range faults() {
					who := by
					if f.name != "paid" {
						turn := (i + k + len(m)) % len(by)
						who = by[turn : turn+1]
					}
					for _, actor := range who {
						list = append(list, trial{flow: f, n: i + 1, what: what, moment: m, fault: fault, recovery: actor})
					}
				}
			}
		}
	}
	return list
}

// someOf takes from each flow what strikes behind its last call to the provider,
// where most hangs on the recovery. The faults take turns.
func someOf(list []trial) []trial {
	last, turn := map[string]int{}, map[string]int{}
	for i, f := range flows() {
		turn[f.name] = i
	}
	for _, c := range list {
		if c.side() == provider {
			last[c.flow.name] = c.n
		}
	}
	return slices.DeleteFunc(list, func(c trial) bool {
		fault := slices.Index(faults(), c.fault) + turn[c.flow.name]
		return c.n != last[c.flow.name] || c.moment != after || fault%len(faults()) > 0
	})
}
