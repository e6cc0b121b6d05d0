package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var runBroken = flag.Bool("broken", false, "run the command against each broken server")

// TestBroken checks that the command reports exactly the clauses that a broken server
// violates. Without -broken it only checks that the patches apply.
func TestBroken(t *testing.T) {
	t.Parallel()
	patches, err := filepath.Glob("testdata/broken/*.patch")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(patches), 12)
	detected := 0
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) { //nolint:paralleltest // the checks measure times
			server := newBrokenServer(t, patch)
			if *runBroken {
				require.Equal(t, server.fails, server.check(t))
				detected++
			}
		})
	}
	if *runBroken {
		fmt.Printf("broken servers: %d of %d detected\n", detected, len(patches))
	}
}

// brokenServer is the orders API without one rule.
type brokenServer struct {
	overlay string   // file that names the changed sources for go build
	level   string   // the highest level to check
	fails   []string // the clauses that fail
}

var (
	patchedFile  = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)
	brokenHeader = regexp.MustCompile(`^.* \((IR-\d+)\)\.\nlevel: ([1-5])\nfails: (.+)\n\n`)
)

// newBrokenServer applies a patch to copies of its files. The patch begins with the rule
// that it removes and its clause, the level to check and the clauses that fail.
func newBrokenServer(t *testing.T, patch string) brokenServer {
	t.Helper()
	text, err := os.ReadFile(patch)
	require.NoError(t, err)
	header := brokenHeader.FindStringSubmatch(string(text))
	require.NotNil(t, header, "the patch does not begin with its clause, level: and fails:")
	fails := strings.Fields(header[3])
	require.Contains(t, fails, header[1])
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	patch, err = filepath.Abs(patch)
	require.NoError(t, err)

	folder := t.TempDir()
	replace := map[string]string{}
	for _, match := range patchedFile.FindAllStringSubmatch(string(text), -1) {
		original, changed := filepath.Join(root, match[1]), filepath.Join(folder, match[1])
		source, err := os.ReadFile(original)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(changed), 0o700))
		require.NoError(t, os.WriteFile(changed, source, 0o600))
		replace[original] = changed
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", patch)
	apply.Dir = folder
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder)) // outside any repository
	output, err := apply.CombinedOutput()
	require.NoError(t, err, "the patch no longer applies: %s", output)

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	s := brokenServer{overlay: filepath.Join(folder, "overlay.json"), level: header[2], fails: fails}
	require.NoError(t, os.WriteFile(s.overlay, overlay, 0o600))
	return s
}

// check returns the clauses that fail.
func (s brokenServer) check(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	check := exec.CommandContext(t.Context(), "./check.sh", "-level", s.level, "-report", "json="+file)
	check.Env = append(os.Environ(), "GOFLAGS=-overlay="+s.overlay)
	output, err := check.CombinedOutput()
	text, unread := os.ReadFile(file)
	require.NoError(t, unread, "%v\n%s", err, output)
	var r report
	require.NoError(t, json.Unmarshal(text, &r))
	var failed []string
	for _, res := range r.Results {
		if res.State == fail {
			failed = append(failed, res.Clause)
			t.Logf("%s: %s", res.Clause, res.Message)
		}
	}
	return failed
}
