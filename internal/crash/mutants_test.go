package crash_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

// Without -matrix=all, TestMutants only checks that the patches apply. In a shop's own copy, which has
// changed the code that they change, a patch that no longer applies is only named, and so is one without the test or
// the cases that detect it.
func TestMutants(t *testing.T) {
	t.Parallel()
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join("..", "..", "lab"))
	isTemplate := err == nil
	var caught atomic.Int64
	t.Cleanup(func() {
		if *matrix == all {
			fmt.Printf("crash mutants: %d of %d caught\n", caught.Load(), len(patches))
		}
	})
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			t.Parallel()
			m, err := newMutant(t, patch)
			if err != nil && !isTemplate {
				fmt.Printf("crash mutants: %v", err)
				return
			}
			require.NoError(t, err)
			if *matrix != all {
				return
			}
			detected, tried := m.isCaught(t)
			if !tried && !isTemplate {
				fmt.Printf("crash mutants: the test or the cases of %s are gone\n", patch)
				return
			}
			require.True(t, detected, "no case has the verdict %q", m.verdict)
			caught.Add(1)
		})
	}
}

// mutant is the program without one rule.
type mutant struct {
	overlay string         // file that names the changed sources for go build
	test    []string       // package and name of the test that must catch it, or none
	cases   *regexp.Regexp // the cases that may catch it
	verdict string         // what the test or one of the cases must report
}

// isCaught reports whether the test or one of the cases detects the mutant, and whether there is one.
func (m mutant) isCaught(t *testing.T) (caught, tried bool) {
	t.Helper()
	if m.test != nil {
		return m.failsTest(t)
	}
	program := filepath.Join(t.TempDir(), "orders")
	require.NoError(t, goBuild(program, "-overlay", m.overlay))
	for _, c := range allCases(t) {
		if !m.cases.MatchString(c.String()) {
			continue
		}
		tried = true
		wrong, err := c.run(t, program) // an error: the mutant does not reach the boundary
		if err == nil && strings.Contains(strings.Join(wrong, "\n"), m.verdict) {
			t.Logf("%s: %s", c, strings.Join(wrong, "\n"))
			return true, true
		}
	}
	return false, tried
}

// failsTest runs a test of the program, for a rule that no case of the matrix needs.
func (m mutant) failsTest(t *testing.T) (caught, tried bool) {
	t.Helper()
	test := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", m.overlay, "-run", "^"+m.test[1]+"$", m.test[0])
	test.Dir = filepath.Join("..", "..")
	output, err := test.CombinedOutput()
	caught = err != nil && strings.Contains(string(output), m.verdict)
	if !caught {
		t.Log(string(output))
	}
	return caught, !strings.Contains(string(output), "no tests to run")
}

var patchHeader = regexp.MustCompile(`(?m)^(cases|test): (.+)\nverdict: (.+)$`)

// newMutant applies a patch, which begins with the rule that it removes, what may catch it (cases
// or a test), and the verdict.
func newMutant(t *testing.T, patch string) (mutant, error) {
	t.Helper()
	header := patchHeader.FindStringSubmatch(read(t, patch))
	require.NotNil(t, header, "the patch has no lines cases: or test:, and verdict:")
	overlay, err := programtest.Overlay(t, patch)
	m := mutant{overlay: overlay, verdict: header[3]}
	if header[1] == "test" {
		m.test = strings.Fields(header[2])
		require.Len(t, m.test, 2, "a package and a test")
	} else {
		m.cases = regexp.MustCompile(header[2])
	}
	return m, err
}
