//go:build unix

package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

var mutants = flag.Bool("mutants", false, "run a short soak with each mutant")

// Without -mutants, TestMutants only checks that the patches apply. The matrix has more
// mutants, but few of them change what clients see of one key.
func TestMutants(t *testing.T) {
	t.Parallel()
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(patches), 3)
	for _, patch := range append(patches, "../../internal/crash/testdata/mutants/fingerprint-after-replay.patch") {
		t.Run(strings.TrimSuffix(filepath.Base(patch), ".patch"), func(t *testing.T) {
			t.Parallel()
			overlay, err := programtest.Overlay(t, patch)
			require.NoError(t, err)
			if *mutants {
				requireRejected(t, overlay)
			}
		})
	}
}

func requireRejected(t *testing.T, overlay string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "orders")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, "./cmd/orders")
	build.Dir = filepath.Join("..", "..")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))

	o, err := parse([]string{"-seed", "1", "-orders", "400", "-kills", "20", "-crashes", "1", "-failovers", "0", "-program", program})
	require.NoError(t, err)
	var out bytes.Buffer
	s, err := startSystem(t.Context(), o, &out)
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(s.folder)) }()
	violations, err := soak(t.Context(), s, o, &out)
	require.NoError(t, s.close())
	require.NoError(t, err)
	rejected := 0
	for _, v := range violations {
		if text, found := strings.CutPrefix(v.what, notLinearizable); found {
			if rejected++; rejected == 1 {
				t.Log(text)
			}
		}
	}
	t.Logf("%d keys are not linearizable\n%s", rejected, &out)
	require.Positive(t, rejected)
}
