package model_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const tracesFile = "testdata/traces.txt"

const stored = 100 // traces in the file, at least

func TestTraces(t *testing.T) {
	t.Parallel()
	if *update {
		require.NoError(t, os.WriteFile(tracesFile, []byte(sample(t)), 0o644))
	}
	if *simulate == 0 {
		for _, trace := range parse(t, read(t, tracesFile)) {
			t.Run(trace.name, func(t *testing.T) {
				t.Parallel()
				replay(t, trace)
			})
		}
		return
	}
	var actions atomic.Int64
	t.Run("simulated", func(t *testing.T) {
		for n := range *simulate {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				trace := parse(t, simulated(t, *seed+n))[0]
				replay(t, trace)
				actions.Add(int64(len(trace.actions)))
			})
		}
	})
	fmt.Printf("%d traces, %d actions\n", *simulate, actions.Load())
}

// sample simulates traces until every action is in one of them. The last ones have
// actions that the others lack.
func sample(t *testing.T) (text string) {
	t.Helper()
	missing := actionNames(t)
	for n, kept := *seed, 0; kept < stored || len(missing) > 0; n++ {
		lines := simulated(t, n)
		before := len(missing)
		missing = slices.DeleteFunc(missing, func(name string) bool { return strings.Contains(lines, "\n"+name+" ") })
		if kept < stored || len(missing) < before {
			text += lines
			kept++
		}
	}
	return text
}

// actionNames returns the names that the model prints.
func actionNames(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?:did|happened)\("([a-z-]+)"\)`).FindAllStringSubmatch(read(t, modelFile), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestTraces_complete(t *testing.T) {
	t.Parallel()
	traces := read(t, tracesFile)
	for _, name := range actionNames(t) {
		require.Contains(t, traces, "\n"+name+" ")
	}
}
