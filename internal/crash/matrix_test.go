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

func TestMatrix(t *testing.T) {
	t.Parallel()
	program := build(t)
	cases := allCases(t)
	if *matrix != all {
		cases = sample(cases)
	}
	var ran, failed atomic.Int64
	start := time.Now()
	t.Cleanup(func() {
		fmt.Printf("crash matrix: %d cases, %d failed, %v\n", ran.Load(), failed.Load(), time.Since(start).Round(time.Second))
	})
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ran.Add(1)
			defer func() {
				if t.Failed() {
					failed.Add(1)
					t.Logf("the fault: %s %s\nagain: go test ./internal/crash -run '^TestMatrix$/%s' -args -matrix=all", c.moment, c.boundary, c)
				}
			}()
			wrong, err := c.run(t, program)
			require.NoError(t, err)
			require.Empty(t, wrong, strings.Join(wrong, "\n"))
		})
	}
}

// allCases returns the cases of the recorded boundaries. In the flow "paid", each actor
// that can recover the key does so in its own case. In the other flows the actors take
// turns, as do the customers.
func allCases(t testing.TB) []testCase {
	t.Helper()
	recorded := recordedBoundaries(t)
	var cases []testCase
	for _, f := range flows() {
		boundaries := recorded[f.name]
		require.NotEmpty(t, boundaries, "%s is not recorded", f.name)
		for i, boundary := range boundaries {
			for _, m := range []moment{before, after} {
				actors := f.recoveries(boundaries, i+1, m)
				for k, fault := range f.faults() {
					recoveries := actors
					if f.name != "paid" {
						turn := (i + k + len(m)) % len(actors)
						recoveries = actors[turn : turn+1]
					}
					c := testCase{flow: f, n: i + 1, boundary: boundary, moment: m, fault: fault}
					if f.customers != nil {
						c.customer = f.customers[(2*i+k+len(m))%len(f.customers)]
						c.late = fault != hold && (i+k)%2 > 0
					}
					for _, c.recovery = range recoveries {
						cases = append(cases, c)
					}
				}
			}
		}
	}
	return cases
}

// sample keeps one case of each flow, with a fault after its last provider call, where
// the recovery is longest. The faults take turns.
func sample(cases []testCase) []testCase {
	last, turn, sampled := map[string]int{}, map[string]int{}, map[string]bool{}
	for i, f := range flows() {
		turn[f.name] = i
	}
	for _, c := range cases {
		if c.side() == provider {
			last[c.flow.name] = c.n
		}
	}
	return slices.DeleteFunc(cases, func(c testCase) bool {
		all := c.flow.faults()
		fault := slices.Index(all, c.fault) + turn[c.flow.name]
		if sampled[c.flow.name] || c.n != last[c.flow.name] || c.moment != after || fault%len(all) > 0 {
			return true
		}
		sampled[c.flow.name] = true
		return false
	})
}
