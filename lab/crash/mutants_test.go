package crash_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/programtest"
)

// Without -matrix=all, TestMutants only checks that the patches apply.
func TestMutants(t *testing.T) {
	t.Parallel()
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	require.NoError(t, err)
	var caught atomic.Int64
	t.Cleanup(func() {
		if *matrix == all {
			fmt.Printf("crash mutants: %d of %d caught\n", caught.Load(), len(patches))
		}
	})
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			t.Parallel()
			m := newMutant(t, patch)
			if *matrix == all {
				require.True(t, m.isCaught(t), "no case has the verdict %q", m.verdict)
				caught.Add(1)
			}
		})
	}
}

// mutant is the program without one rule.
type mutant struct {
	overlay string         // file that names the changed sources for go build
	cases   *regexp.Regexp // the cases that may catch it
	verdict string         // what one of them must report
}

func (m mutant) isCaught(t *testing.T) bool {
	t.Helper()
	program := filepath.Join(t.TempDir(), "orders")
	require.NoError(t, goBuild(program, "-overlay", m.overlay))
	for _, c := range allCases(t) {
		if !m.cases.MatchString(c.String()) {
			continue
		}
		wrong, err := c.run(t, program) // an error: the mutant does not reach the boundary
		if err == nil && strings.Contains(strings.Join(wrong, "\n"), m.verdict) {
			t.Logf("%s: %s", c, strings.Join(wrong, "\n"))
			return true
		}
	}
	return false
}

var patchHeader = regexp.MustCompile(`(?m)^cases: (\S+)\nverdict: (.+)$`)

// newMutant applies a patch, which begins with the rule that it removes, the cases that may
// catch it, and the verdict.
func newMutant(t *testing.T, patch string) mutant {
	t.Helper()
	header := patchHeader.FindStringSubmatch(read(t, patch))
	require.NotNil(t, header, "the patch has no lines cases: and verdict:")
	return mutant{
		overlay: programtest.Overlay(t, patch),
		cases:   regexp.MustCompile(header[1]),
		verdict: header[2],
	}
}
