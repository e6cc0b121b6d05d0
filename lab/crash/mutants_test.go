package crash_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
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

var (
	patchedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)
	patchHeader = regexp.MustCompile(`(?m)^cases: (\S+)\nverdict: (.+)$`)
)

// newMutant applies a patch to copies of its files. The patch begins with the rule that
// it removes, the cases that may catch it, and the verdict.
func newMutant(t *testing.T, patch string) mutant {
	t.Helper()
	text := read(t, patch)
	header := patchHeader.FindStringSubmatch(text)
	require.NotNil(t, header, "the patch has no lines cases: and verdict:")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	patch, err = filepath.Abs(patch)
	require.NoError(t, err)

	folder := t.TempDir()
	replace := map[string]string{}
	for _, match := range patchedFile.FindAllStringSubmatch(text, -1) {
		original, changed := filepath.Join(root, match[1]), filepath.Join(folder, match[1])
		require.NoError(t, os.MkdirAll(filepath.Dir(changed), 0o755))
		require.NoError(t, os.WriteFile(changed, []byte(read(t, original)), 0o644))
		replace[original] = changed
	}
	apply := exec.Command("git", "apply", patch)
	apply.Dir = folder
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder)) // outside any repository
	output, err := apply.CombinedOutput()
	require.NoError(t, err, "the patch no longer applies: %s", output)

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	m := mutant{
		overlay: filepath.Join(folder, "overlay.json"),
		cases:   regexp.MustCompile(header[1]),
		verdict: header[2],
	}
	require.NoError(t, os.WriteFile(m.overlay, overlay, 0o644))
	return m
}
