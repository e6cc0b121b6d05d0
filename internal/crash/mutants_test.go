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

// TestMutants takes one rule after the other out of the program, and looks
// whether the matrix notices. Without -matrix=all it only looks whether the
// patches still apply.
func TestMutants(t *testing.T) {
	t.Parallel()
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	require.NoError(t, err)
	var noticed atomic.Int64
	t.Cleanup(func() {
		if *matrix == all {
			fmt.Printf("crash mutants: %d of %d noticed\n", noticed.Load(), len(patches))
		}
	})
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			t.Parallel()
			m := mutate(t, patch)
			if *matrix == all {
				require.True(t, m.isNoticed(t), "no case has the verdict %q", m.verdict)
				noticed.Add(1)
			}
		})
	}
}

// mutant is the program with a rule less.
type mutant struct {
	overlay string         // the file that tells go build of the changed sources
	cases   *regexp.Regexp // the cases that are to notice
	verdict string         // what one of them has to say
}

// isNoticed builds the mutant and plays its cases, until one says what it has to.
func (m mutant) isNoticed(t *testing.T) bool {
	t.Helper()
	program := filepath.Join(t.TempDir(), "orders")
	require.NoError(t, goBuild(program, "-overlay", m.overlay))
	for _, c := range everyTrial(t) {
		if !m.cases.MatchString(c.String()) {
			continue
		}
		wrong, err := c.run(t, program) // an error: the mutant never gets there
		if err == nil && strings.Contains(strings.Join(wrong, "\n"), m.verdict) {
			t.Logf("%s: %s", c, strings.Join(wrong, "\n"))
			return true
		}
	}
	return false
}

var (
	touched = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)
	chosen  = regexp.MustCompile(`(?m)^cases: (\S+)\nverdict: (.+)$`)
)

// mutate applies a patch to copies of the files that it touches. Above its first
// file the patch says what it takes out, and who is to notice.
func mutate(t *testing.T, patch string) mutant {
	t.Helper()
	text := read(t, patch)
	notice := chosen.FindStringSubmatch(text)
	require.NotNil(t, notice, "the patch has no lines cases: and verdict:")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	patch, err = filepath.Abs(patch)
	require.NoError(t, err)

	folder := t.TempDir()
	replace := map[string]string{}
	for _, match := range touched.FindAllStringSubmatch(text, -1) {
		original, changed := filepath.Join(root, match[1]), filepath.Join(folder, match[1])
		require.NoError(t, os.MkdirAll(filepath.Dir(changed), 0o755))
		require.NoError(t, os.WriteFile(changed, []byte(read(t, original)), 0o644))
		replace[original] = changed
	}
	apply := exec.Command("git", "apply", patch)
	apply.Dir = folder
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder)) // no repository
	output, err := apply.CombinedOutput()
	require.NoError(t, err, "the patch does not apply any more: %s", output)

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	m := mutant{
		overlay: filepath.Join(folder, "overlay.json"),
		cases:   regexp.MustCompile(notice[1]),
		verdict: notice[2],
	}
	require.NoError(t, os.WriteFile(m.overlay, overlay, 0o644))
	return m
}
